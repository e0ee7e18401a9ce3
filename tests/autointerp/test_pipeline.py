"""The stage that makes labels: evidence in, one labels file out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from autointerp.conftest import Labelled
from autointerp.emulated import FEATURES, NUMBER, Sweep
from neuroscope.autointerp.evidence import PoolSide
from neuroscope.autointerp.labeler import LabelRequest, LabelResult
from neuroscope.autointerp.pipeline import label_features
from neuroscope.labels import SCHEMA


def test_a_dead_feature_has_no_label_and_is_counted(labelled: Labelled) -> None:
    frame = pl.read_parquet(labelled.labels_path)
    assert NUMBER["dead"] not in frame["feature"].to_list()
    assert (labelled.label_counts.labelled, labelled.label_counts.without_label) == (len(FEATURES) - 1, 1)
    assert sum(labelled.label_counts.by_confidence.values()) == len(frame)


def test_the_same_evidence_gives_the_same_labels(
    labelled: Labelled, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    label_features(
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        stats=emulated_sweep.stats,
        logits=emulated_sweep.logits,
        tokens=emulated_sweep.world.text,
        out=tmp_path / "again.parquet",
    )
    first, again = pl.read_parquet(labelled.labels_path), pl.read_parquet(tmp_path / "again.parquet")
    assert first.drop("created_at").equals(again.drop("created_at"))


class Namer:
    """Names every feature; the one in `renamed` otherwise than before."""

    source, model, method = "claude", "namer", "none"

    def __init__(self, renamed: int | None = None) -> None:
        self.renamed = renamed

    def label(self, request: LabelRequest) -> LabelResult:
        name = "another thing" if request.feature == self.renamed else f"thing {request.feature}"
        return LabelResult(request.feature, "labelled", name, "low")


def test_a_label_keeps_the_time_it_was_made_at_until_it_changes(
    emulated_sweep: Sweep, tmp_path: Path
) -> None:
    out = tmp_path / "claude.parquet"

    def label(year: int, renamed: int | None = None) -> bytes:
        label_features(
            examples=emulated_sweep.examples,
            pool=emulated_sweep.pool,
            tokens=emulated_sweep.world.text,
            labeler=Namer(renamed),
            out=out,
            now=lambda: datetime(year, 1, 1, tzinfo=UTC),
        )
        return out.read_bytes()

    first = label(2001)
    assert label(2002) == first
    renamed = pl.read_parquet(out)["feature"][0]
    assert label(2003, renamed) != first
    years = {row["feature"]: row["created_at"][:4] for row in pl.read_parquet(out).iter_rows(named=True)}
    assert years.pop(renamed) == "2003"
    assert set(years.values()) == {"2001"}
    out.write_bytes(b"damaged")
    label(2004)
    assert set(pl.read_parquet(out)["created_at"].str.slice(0, 4)) == {"2004"}


class Recorder:
    """A labeler that refuses to name one feature and remembers what it was shown."""

    source, model, method = "claude", "recorder", "none"

    def __init__(self) -> None:
        self.requests: dict[int, LabelRequest] = {}

    def label(self, request: LabelRequest) -> LabelResult:
        self.requests[request.feature] = request
        if request.feature == 0:
            return LabelResult(0, "refused", pattern="no")
        return LabelResult(request.feature, "labelled", f"thing {request.feature}", "low")


def test_any_labeler_can_be_asked_and_a_refusal_is_no_label(emulated_sweep: Sweep, tmp_path: Path) -> None:
    recorder, out = Recorder(), tmp_path / "claude.parquet"
    counts = label_features(
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        stats=emulated_sweep.stats,
        tokens=emulated_sweep.world.text,
        out=out,
        per_feature=12,
        sampled=4,
        labeler=recorder,
    )
    frame = pl.read_parquet(out)
    assert 0 not in frame["feature"].to_list()
    assert set(frame["source"]) == {"claude"}
    assert counts.without_label == 2
    asked = recorder.requests[NUMBER["digits"]]
    assert (len(asked.top), len(asked.sample)) == (12, 4)


def test_a_labeler_never_sees_a_document_that_its_label_is_scored_on(
    emulated_sweep: Sweep, tmp_path: Path
) -> None:
    recorder = Recorder()
    label_features(
        examples=emulated_sweep.examples,
        pool=emulated_sweep.pool,
        tokens=emulated_sweep.world.text,
        out=tmp_path / "x.parquet",
        labeler=recorder,
    )
    frame = pl.read_parquet(emulated_sweep.examples)
    side, seen = PoolSide.read(emulated_sweep.pool, labelling=True), 0
    rows = np.repeat(np.arange(len(side.windows), dtype=np.int32)[:, None], 25, axis=1)
    numbered = replace(side, windows=rows)
    for feature, request in recorder.requests.items():
        own = frame.filter(pl.col("feature") == feature)
        scored = set(own.filter(pl.col("kind") == "held_out")["doc_id"])
        assert request.unseen == scored
        assert not scored & set(own.filter(pl.col("kind") != "held_out")["doc_id"])
        shown = numbered.firings(feature, without=request.unseen, limit=10_000)
        assert not scored & {side.documents[row] for row in shown.windows[:, 0].tolist()}
        seen += len(shown)
    assert seen > 50


def test_the_file_has_the_columns_of_labels_and_the_rule(labelled: Labelled) -> None:
    frame = pl.read_parquet(labelled.labels_path)
    assert frame.columns == [*SCHEMA, "rule", "pattern"]
    assert set(frame["source"]) == {"tokens"}
    assert frame["model"].null_count() == len(frame)
    assert frame["feature"].is_sorted()
