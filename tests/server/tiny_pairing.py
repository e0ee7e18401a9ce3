"""A pairing of a tiny random model and SAE with results made for it, for the real server process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from fakes.tiny import D_SAE, TINY_LAYER

from neuroscope import settings
from neuroscope.autointerp.score_rows import SCHEMA as SCORES_SCHEMA
from neuroscope.identity import fingerprint_of
from neuroscope.labels import Label
from neuroscope.manifest import Fingerprint
from neuroscope.models.loading import load_tokenizer
from neuroscope.sae import load_sae
from neuroscope.sources import resolve
from neuroscope.stats import FeatureStats
from neuroscope.store import build
from neuroscope.sweep.merging import stats_frame

ALWAYS_ON = 3
"""In the statistics this feature fires on every token, the others on a tenth."""


def pairing(model: Path, sae: Path) -> dict[str, Any]:
    """The pairing file."""
    return {
        "description": "A tiny random model with a tiny random SAE.",
        "model": str(model),
        "layer": TINY_LAYER,
        "dtype": "float32",
        "licence": "none",
        "sae": {"source": str(sae), "format": "gemma_scope", "width": D_SAE},
    }


def fingerprint(config: Path) -> Fingerprint:
    """Of the pairing in this configuration."""
    chosen = settings.load(config=config).pairing
    source = resolve(chosen.model)
    return fingerprint_of(
        chosen,
        model=source,
        tokenizer=load_tokenizer(source.path),
        sae=load_sae(chosen.sae.uri, device="cpu"),
        sae_file=Path(chosen.sae.uri),
    )


def write_results(
    folder: Path, made_by: Fingerprint, *, strata: Sequence[str] = ("all", "chat"), labelled: bool = True
) -> Path:
    """results.duckdb and its manifest in `folder`: statistics, an example, a scored label of every even feature."""
    labels = [Label(i, "tokens", f"label of {i}", "high") for i in range(0, D_SAE, 2)] if labelled else []
    path = folder / "results.duckdb"
    stats = stats_frame({stratum: _stats() for stratum in strata})
    tokens = [bytes([token % 128]) for token in range(320)]
    build(
        path,
        fingerprint=made_by,
        stats=stats,
        examples=_examples(),
        tokens=tokens,
        labels=labels,
        scores=_scores(labels),
    )
    return path


def _scores(labels: Sequence[Label]) -> pl.DataFrame:
    rows = [(label.feature, label.source, "rule", 0.75, 0.5, 1.0, 15, 5, 15, 5, 0) for label in labels]
    return pl.DataFrame(rows, schema=SCORES_SCHEMA, orient="row")


def _stats() -> FeatureStats:
    """Feature 3 fires on each of 1,000 tokens, every other one on 100, at 1 and 3 by turns."""
    stats = FeatureStats(D_SAE)
    firings = [(f, 1.0 + 2 * (n % 2)) for f in range(D_SAE) for n in range(1000 if f == ALWAYS_ON else 100)]
    features = np.array([f for f, _ in firings], np.int32)
    values = np.array([value for _, value in firings], np.float32)
    per_token = np.full(1000, len(firings) // 1000)
    per_token[: len(firings) % 1000] += 1
    stats.add(features, values, per_token)
    return stats


def _examples() -> pl.DataFrame:
    window = np.full((1, 25), 65, np.int32)
    return pl.DataFrame(
        {
            "feature": pl.Series([4], dtype=pl.Int32),
            "kind": ["top"],
            "rank": pl.Series([0], dtype=pl.Int32),
            "activation": pl.Series([9.5], dtype=pl.Float32),
            "token_id": window[:, 12],
            "window": pl.Series(window, dtype=pl.Array(pl.Int32, 25)),
            "doc_id": ["aa"],
            "position": pl.Series([12], dtype=pl.Int32),
            "stratum": ["chat"],
        }
    )
