"""A small results.duckdb whose report can be computed in the head: 16 features, two strata, hostile labels.

In the chat (1,000 tokens) feature f fires on 10 f tokens, in code (2,000 tokens) on 20 f, so alike; but feature 0 is
dead, 14 fires four times as often in code, 15 only in the chat. Each firing is as strong as 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tiny_sweep import make_fingerprint

from neuroscope import settings, store
from neuroscope.autointerp.score_rows import SCHEMA
from neuroscope.examples import WINDOW
from neuroscope.labels import Label
from neuroscope.stats import HISTOGRAM_BINS

WIDTH = 16
TOKENS = {"chat": 1000, "code": 2000}
IN_CHAT = 10 * np.arange(WIDTH)
IN_CODE = np.array([*(20 * np.arange(14)), 1120, 0])
HOSTILE = "<script>alert(1)</script> $\\frac{1}{0}$ \x00\x1b[2J \u202egnp"
LABELS = (
    *(Label(f, "tokens", f"label of {f}", "high", None, "rule") for f in range(1, 10)),
    Label(15, "claude", HOSTILE, "high", "a-model", "prompt"),
)
SCORES = (
    *((f, "tokens", "rule", f / 10, f / 10 - 0.1, f / 10 + 0.1, 5, 4, 6, 5, 0) for f in range(1, 9)),
    (9, "tokens", "rule", None, None, None, 0, 0, 0, 0, 9),
)
SWEEP = {
    "strata": {
        "chat": {"documents": 10, "l0_histogram": [500, 0, 500]},
        "code": {"documents": 20, "l0_histogram": [0, 1000, 1000]},
        "all": {"documents": 30, "l0_histogram": [500, 1000, 1500]},
    },
    "coverage": [
        {"tokens": 1000, "features": 9},
        {"tokens": 2500, "features": 14},
        {"tokens": 3000, "features": 15},
    ],
    "quarantined": [],
    "halved": {},
}


def statistics(counts: dict[str, tuple[int, Any]] | None = None) -> pl.DataFrame:
    """stats.parquet: stratum -> tokens and firings of each feature; `all` is their sum."""
    strata = counts or {"chat": (1000, IN_CHAT), "code": (2000, IN_CODE)}
    fired = {name: np.asarray(found, np.int64) for name, (_, found) in strata.items()}
    tokens = {name: n for name, (n, _) in strata.items()}
    fired["all"], tokens["all"] = sum(fired.values()), sum(tokens.values())
    frames = [_frame(name, tokens[name], found) for name, found in fired.items()]
    return pl.concat(frames).sort("feature", "stratum")


def _frame(name: str, tokens: int, fired: Any) -> pl.DataFrame:
    width = len(fired)
    return pl.DataFrame(
        {
            "feature": np.arange(width, dtype=np.int32),
            "stratum": [name] * width,
            "n_tokens": np.full(width, tokens, np.int64),
            "n_fired": fired,
            "sum": 2.0 * fired,
            "sum_sq": 4.0 * fired,
            "max_activation": np.where(fired > 0, 2.0 + np.arange(width) / 10, 0.0),
            "histogram": pl.Series(np.zeros((width, HISTOGRAM_BINS), np.int64)).arr.to_list(),
        }
    )


def no_examples() -> pl.DataFrame:
    schema = {
        "feature": pl.Int32,
        "kind": pl.String,
        "rank": pl.Int32,
        "activation": pl.Float32,
        "token_id": pl.Int32,
        "window": pl.Array(pl.Int32, WINDOW),
        "doc_id": pl.String,
        "position": pl.Int32,
        "stratum": pl.String,
    }
    return pl.DataFrame(schema=schema)


def settings_in(folder: Path, **overrides: Any) -> settings.Settings:
    """Of the pairing smollm2-135m, with results in `folder`."""
    return settings.load("smollm2-135m", overrides={"results": f"{folder}/{{pairing}}", **overrides})


def build(settled: settings.Settings, **changes: Any) -> Path:
    """results.duckdb in the folder of the settings; `changes` are arguments of `store.build`."""
    given: dict[str, Any] = {
        "fingerprint": make_fingerprint(d_sae=WIDTH),
        "stats": statistics(),
        "examples": no_examples(),
        "tokens": [b" the"],
        "labels": LABELS,
        "scores": pl.DataFrame(SCORES, schema=SCHEMA, orient="row"),
        "report": SWEEP,
    }
    path = settled.results / "results.duckdb"
    store.build(path, **{**given, **changes})
    return path
