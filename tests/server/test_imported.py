"""A server without any results of its own, but with an import from Neuronpedia: it names and filters at once, and says
whose figures those are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.neuronpedia import MODEL, SAE, FakeBucket, explanation, feature
from fakes.tiny import D_SAE
from serving import EventStream, serving, wait_until, write_config
from tiny_pairing import fingerprint, pairing, write_results

from neuroscope import imported, settings
from neuroscope.cli import main
from neuroscope.known import find_known
from neuroscope.labels import LabelSet
from neuroscope.neuronpedia import import_features
from neuroscope.settings import Neuronpedia
from neuroscope.stats import CalibrationStats

OFTEN = frozenset(range(0, D_SAE, 2))
"""Features that fire on nine tokens of ten, says Neuronpedia; of feature 1 it says nothing."""
RATES = [feature(i, 0.9 if i in OFTEN else 0.1) for i in range(D_SAE) if i != 1]


@pytest.fixture
def made_of(tiny_gemma_path: Path, tiny_sae_path: Path) -> dict[str, Any]:
    names = {"model_id": MODEL, "sae_id": SAE}
    return pairing(tiny_gemma_path, tiny_sae_path) | {"neuronpedia": names}


@pytest.fixture
def config(tmp_path: Path, made_of: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A configuration of the tiny pairing whose results are an import and nothing else."""
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    path = write_config(tmp_path, pairing=made_of, device="cpu")
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(path))
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    with FakeBucket() as bucket:
        bucket.publish("explanations", [explanation(i, f"what {i} is about") for i in range(D_SAE)], 16)
        bucket.publish("features", RATES, 16)
        settled = settings.load(config=path, overrides={"neuronpedia.base_url": bucket.url})
        folder = settled.results
        files = {"labels": imported.LABELS, "prior": imported.PRIOR, "logits": imported.LOGITS}
        import_features(
            settled, **{key: folder / name for key, name in files.items()}, report=folder / "n.json"
        )
    return path


def test_an_import_alone_names_and_filters_and_then_beside_a_calibration(
    tmp_path: Path, config: Path, made_of: dict[str, Any]
) -> None:
    often = {"results_poll_s": 0.2}
    with serving(tmp_path, app="neuroscope.wsgi", pairing=made_of, device="cpu", serve=often) as server:
        ready = server.get("/readyz").json()
        assert ready["status"] == "degraded"
        (said,) = ready["degraded"]
        assert f"firing rates that Neuronpedia publishes ({MODEL}/{SAE}), none were measured here" in said
        assert "snakemake --cores 4 labels" in said
        assert ready["stats"] == {"source": "neuronpedia prior", "tokens": None}
        assert ready["ranking"]["filter"] == "frequency"
        assert ready["labels"] == {"count": D_SAE, "sources": {"neuronpedia": D_SAE}}
        assert "by the neuronpedia prior, not measured here" in server.output
        with EventStream(server.features_port, f"/v1/features/stream?top_k={D_SAE}") as subscriber:
            next(subscriber.blocks())
            server.chat("hello", seed=7, max_tokens=24)
            events = subscriber.until("generation_complete")[:-1]
        shown = [found for event in events for found in event.data["top_features"]]
        indices = {found["index"] for found in shown}
        assert indices
        assert not indices & OFTEN
        assert sum(event.data["filtered_count"] for event in events) > 0
        assert all(found["label"] == f"what {found['index']} is about" for found in shown)
        assert {found["surprise"] for found in shown} == {None}
        with EventStream(
            server.features_port, f"/v1/features/stream?top_k={D_SAE}&filter=none"
        ) as subscriber:
            next(subscriber.blocks())
            server.chat("hello", seed=7, max_tokens=24)
            unfiltered = subscriber.until("generation_complete")[:-1]
        for event, whole in zip(events, unfiltered, strict=True):
            kept = [found["index"] for found in whole.data["top_features"] if found["index"] not in OFTEN]
            assert [found["index"] for found in event.data["top_features"]] == kept, "feature 1 is kept too"

        write_results(settings.load(config=config).results, fingerprint(config), labelled=False)
        wait_until(lambda: server.get("/readyz").json()["status"] == "ready", what="the calibration")
        assert server.get("/readyz").json()["stats"]["source"] == "measured"
        found = server.get("/v1/features/search?q=17 IS about").json()["features"]
        assert [(row["feature"], row["label"]) for row in found] == [(17, "what 17 is about")]
        assert server.get("/v1/features/17").json()["label"] == "what 17 is about"


def test_what_is_measured_here_comes_first(config: Path) -> None:
    settled = settings.load(config=config)
    used = fingerprint(config)
    write_results(settled.results, used, labelled=False)
    known = find_known(settled, used)
    assert isinstance(known.stats, CalibrationStats)
    assert known.label_sources == {"neuronpedia": D_SAE}, "a calibration has no labels of its own"
    assert known.degraded == ()
    write_results(settled.results, used)
    assert find_known(settled, used).label_sources == {"tokens": D_SAE // 2}


def test_an_import_about_another_pair_is_said_and_not_used(config: Path) -> None:
    settled = settings.load(config=config)
    other = Neuronpedia(MODEL, "2-tiny-res-64")
    LabelSet().to_parquet(settled.results / imported.LABELS)
    imported.write(settled.results / imported.PRIOR, imported_rates(settled.results), other)
    known = find_known(settled, fingerprint(config))
    assert (known.stats, known.label_sources) == (None, {})
    assert len(known.degraded) == 2
    assert "is about tiny/2-tiny-res-64, the pairing is tiny/1-tiny-res-64" in known.degraded[0]


def imported_rates(results: Path) -> Any:
    import polars as pl

    return pl.read_parquet(results / imported.PRIOR).drop(imported.ABOUT)


def test_the_command_line_shows_an_import_and_calls_it_so(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "show", "--json", "--top", "3"]) == 0
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert [(row["feature"], row["firing_rate"], row["source"]) for row in rows] == [
        (index, 0.9, "neuronpedia prior") for index in (0, 2, 4)
    ]
    assert f"These firing rates are Neuronpedia's ({MODEL}/{SAE})" in shown.err
    assert main(["labels", "show", "--json", "--features", "5"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["label"], row["source"], row["balanced_accuracy"]) == ("what 5 is about", "neuronpedia", None)
    assert main(["labels", "show", "--features", "64"]) == 1
    assert "features 0 to 63" in capsys.readouterr().err
