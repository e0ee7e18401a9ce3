"""The emulated sweep, made once for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from fakes.claude import FakeClaude

from autointerp.emulated import NUMBER, Sweep, World, sweep
from neuroscope.autointerp.pipeline import LabelCounts, label_features
from neuroscope.autointerp.scoring import ScoreCounts, score_labels


@pytest.fixture(scope="session")
def emulated_sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep(World.written(), tmp_path_factory.mktemp("emulated"))


@dataclass(frozen=True)
class Labelled:
    """The emulated sweep's labels and scores."""

    labels_path: Path
    scores_path: Path
    label_counts: LabelCounts
    score_counts: ScoreCounts

    def label(self, name: str) -> dict[str, object]:
        frame = pl.read_parquet(self.labels_path).filter(pl.col("feature") == NUMBER[name])
        return frame.row(0, named=True)

    def score(self, name: str, method: str = "rule") -> dict[str, object]:
        frame = pl.read_parquet(self.scores_path)
        return frame.filter((pl.col("feature") == NUMBER[name]) & (pl.col("method") == method)).row(
            0, named=True
        )


@pytest.fixture(scope="session")
def labelled(emulated_sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Labelled:
    files = emulated_sweep
    folder = tmp_path_factory.mktemp("labelled")
    labels, scores = folder / "labels" / "tokens.parquet", folder / "scores.parquet"
    label_counts = label_features(
        examples=files.examples,
        pool=files.pool,
        stats=files.stats,
        logits=files.logits,
        tokens=files.world.text,
        out=labels,
    )
    score_counts = score_labels(
        labels=[labels],
        examples=files.examples,
        pool=files.pool,
        neighbours=files.neighbours,
        tokens=files.world.text,
        out=scores,
    )
    return Labelled(labels, scores, label_counts, score_counts)


@pytest.fixture
def claude(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClaude]:
    """A fake service that the real SDK finds, with a key it accepts."""
    with FakeClaude() as served:
        for name in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", served.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secretsecret")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield served
