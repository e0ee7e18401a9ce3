"""results.duckdb for the scripted engine: 32 features of layer 7, with figures one can compute in the head.

Feature f fires on 10 f of 1,000 tokens, at 1 and 3 by turns; in the chat, on as many of 500. Its label is `label of f`,
but for a few; 28 to 31 have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scripted import FINGERPRINT, WIDTH

from neuroscope.autointerp.score_rows import SCHEMA as SCORES_SCHEMA
from neuroscope.labels import Label
from neuroscope.stats import FeatureStats
from neuroscope.store import build
from neuroscope.sweep.merging import stats_frame

LABELLED = 28
SPECIAL = {
    5: "Straße in Köln",
    6: "ÉTÉ, the summer",
    7: "100% of _x_",
    8: "cafe\u0301 written with two characters",
    9: "猫",
}
TOKENS = [b" the", b" cat", b" sat", "é".encode(), b"\n", b"<b>"]
KINDS = ("top", "sample", "held_out")


def label_of(feature: int, name: str = "label of") -> str:
    return SPECIAL.get(feature, f"{name} {feature}")


def labels(name: str = "label of") -> list[Label]:
    """One of the labeler `tokens` for each of the first 28, and a second one for feature 4."""
    made = [
        Label(f, "tokens", label_of(f, name), "high", None, "distinctive tokens") for f in range(LABELLED)
    ]
    return [*made, Label(4, "neuronpedia", "an imported name", None, "gpt-4o-mini", "oai_token-act-pair")]


def scores() -> pl.DataFrame:
    """Feature f scores (50 + f) / 100, by its rule."""
    return pl.DataFrame(
        [
            (f, "tokens", "rule", (50 + f) / 100, (45 + f) / 100, (55 + f) / 100, 5, 4, 6, 5, 0)
            for f in range(LABELLED)
        ],
        schema=SCORES_SCHEMA,
        orient="row",
    )


def write_results(folder: Path, name: str = "label of", **changes: Any) -> Path:
    """results.duckdb and its manifest in `folder`; `changes` are arguments of `store.build`."""
    given: dict[str, Any] = {
        "fingerprint": FINGERPRINT,
        "stats": statistics(),
        "examples": examples(),
        "tokens": TOKENS,
        "labels": labels(name),
        "label_states": pl.DataFrame(
            {
                "feature": pl.Series([4, 4, 30], dtype=pl.Int32),
                "source": ["claude", "tokens", "tokens"],
                "state": ["refused", "labelled", "insufficient"],
                "reason": ["it has 16 words (at most 15)", None, "3 examples"],
            }
        ),
        "scores": scores(),
        "logits": pl.DataFrame(
            [(4, "promoted", 0, 1, " cat", 1.5), (4, "suppressed", 0, 0, " the", -1.0)],
            schema=["feature", "kind", "rank", "token_id", "token", "weight"],
            orient="row",
        ),
        "neighbours": pl.DataFrame(
            {"feature": [4, 4], "other": [5, 30], "cofiring": [0.25, 0.5], "n_both": [10, 20]}
        ),
    }
    path = folder / "results.duckdb"
    build(path, **{**given, **changes})
    return path


def statistics(strata: Sequence[str] = ("all", "chat"), shift: float = 0.0) -> pl.DataFrame:
    """`shift` is added to every activation."""
    return stats_frame({stratum: _stats(500 if stratum == "chat" else 1000, shift) for stratum in strata})


def _stats(n_tokens: int, shift: float) -> FeatureStats:
    stats = FeatureStats(WIDTH)
    firings = [(f, 1.0 + 2 * (n % 2) + shift) for f in range(WIDTH) for n in range(10 * f)]
    per_token = np.full(n_tokens, len(firings) // n_tokens)
    per_token[: len(firings) % n_tokens] += 1
    features, values = (
        np.array([f for f, _ in firings], np.int32),
        np.array([v for _, v in firings], np.float32),
    )
    stats.add(features, values, per_token)
    return stats


def examples() -> pl.DataFrame:
    """Of feature 4, three of each kind: ` the cat sat`, in the text's beginning, and at an end without room before."""
    windows = np.full((9, 25), -1, np.int32)
    windows[:, 12] = 1
    windows[:, 13] = 2
    windows[0::3, 11] = 0
    return pl.DataFrame(
        {
            "feature": pl.Series([4] * 9, dtype=pl.Int32),
            "kind": [kind for kind in KINDS for _ in range(3)],
            "rank": pl.Series([0, 1, 2] * 3, dtype=pl.Int32),
            "activation": pl.Series([9.5, 4.25, 1.0] * 3, dtype=pl.Float32),
            "token_id": windows[:, 12],
            "window": pl.Series(windows, dtype=pl.Array(pl.Int32, 25)),
            "doc_id": [f"doc{n}" for n in range(9)],
            "position": pl.Series([1, 0, 0] * 3, dtype=pl.Int32),
            "stratum": ["chat"] * 9,
        }
    )


def empty_examples() -> pl.DataFrame:
    return examples().clear()
