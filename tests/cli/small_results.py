"""A folder with configuration, and in it a small results.duckdb whose texts are hostile."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from tiny_sweep import make_fingerprint

from neuroscope import settings
from neuroscope.autointerp.score_rows import SCHEMA as SCORES_SCHEMA
from neuroscope.labels import Label
from neuroscope.stats import FeatureStats
from neuroscope.store import build
from neuroscope.sweep.merging import stats_frame

ROOT = Path(__file__).parents[2]
PAIRING = "small"
D_SAE = 8
HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202eevil\u009b31m"
"""Clears the screen, renames the window, turns the direction of writing, colours what follows."""

TOKENS = [b" the", b" cat", b"\n", b"\x1b[2J", "é😀".encode(), b"=1+1", b"=cmd|' /C calc'!A1", b" sat"]
LABELS = (
    Label(
        0, "claude", "animals that people keep", "high", "claude-haiku", "examples", "2026-01-01T00:00:00Z"
    ),
    Label(0, "neuronpedia", "cats and dogs", None, "gpt-4o-mini", "oai_token-act-pair"),
    Label(0, "neuronpedia", "pets", None, "gemini-2.0-flash", "np_max-act-logits"),
    Label(0, "tokens", '" cat"', "medium", None, "distinctive tokens"),
    Label(1, "tokens", HOSTILE, "low", None, "distinctive tokens"),
    Label(1, "claude", "terminal codes", "medium", "claude-haiku", "examples"),
    Label(2, "tokens", "=1+1", "medium", None, "distinctive tokens"),
    Label(2, "claude", "=1+1", "medium", "claude-haiku", "examples"),
    Label(3, "neuronpedia", "猫, 'cat' in Japanese", None, "gpt-4o-mini", "oai_token-act-pair"),
)
SCORES = (
    (0, "claude", "rule", 0.9, 0.8, 0.95, 9, 1, 9, 1, 0),
    (0, "claude", "rule_near_miss", 0.7, 0.6, 0.8, 7, 3, 7, 3, 1),
    (0, "neuronpedia", "rule", 0.65, 0.5, 0.8, 7, 4, 6, 3, 0),
    (0, "tokens", "rule", 0.55, 0.4, 0.7, 5, 4, 6, 5, 0),
    (1, "tokens", "rule", 0.5, 0.3, 0.7, 5, 5, 5, 5, 2),
    (1, "claude", "rule", 0.8, 0.6, 0.9, 8, 2, 8, 2, 0),
    (2, "claude", "rule", None, None, None, 0, 0, 0, 0, 20),
)


def make_folder(folder: Path) -> Path:
    """A folder that commands run in, with a pairing on files that are not there."""
    shutil.copytree(ROOT / "config", folder / "config")
    shutil.copytree(ROOT / "workflow/schemas", folder / "workflow/schemas")
    pairing = {
        "description": "Names only.",
        "model": "hf://someone/a-model",
        "layer": 1,
        "dtype": "float32",
        "licence": "none",
        "sae": {
            "source": "hf://someone/an-sae",
            "path": "params.npz",
            "format": "gemma_scope",
            "width": D_SAE,
        },
        "neuronpedia": {"model_id": "a-model", "sae_id": "1-res-8"},
    }
    (folder / f"config/pairings/{PAIRING}.yaml").write_text(yaml.safe_dump(pairing))
    return folder


def build_results(folder: Path, **changes: Any) -> Path:
    """results.duckdb of the pairing in `folder`, which is the working directory."""
    pairing = settings.load(PAIRING).pairing
    fingerprint = make_fingerprint(
        model=pairing.model, sae=pairing.sae.uri, layer=pairing.layer, d_sae=pairing.sae.width
    )
    path = folder / f"results/{PAIRING}/results.duckdb"
    given: dict[str, Any] = {
        "fingerprint": fingerprint,
        "stats": stats_frame(_stats()),
        "examples": _examples(),
        "tokens": TOKENS,
        "labels": LABELS,
        "scores": pl.DataFrame(SCORES, schema=SCORES_SCHEMA, orient="row"),
        "logits": pl.DataFrame(
            [
                (0, "promoted", 0, 1, " cat", 1.5),
                (0, "promoted", 1, 3, "\x1b[2J", 1.0),
                (0, "suppressed", 0, 0, " the", -1.0),
            ],
            schema=["feature", "kind", "rank", "token_id", "token", "weight"],
            orient="row",
        ),
    }
    build(path, **{**given, **changes})
    return path


def _stats() -> dict[str, FeatureStats]:
    """On 4 tokens feature 0 fires twice, as strong as 1 and 3; the others but the last, which is dead, once."""
    found = {}
    for stratum in ("all", "chat"):
        stats = FeatureStats(D_SAE)
        features = np.array([0, 0, *range(1, D_SAE - 1)], np.int32)
        activations = np.array([1.0, 3.0, *[2.0] * (D_SAE - 2)], np.float32)
        stats.add(features, activations, np.array([len(features), 0, 0, 0]))
        found[stratum] = stats
    return found


def _examples() -> pl.DataFrame:
    windows = np.full((4, 25), -1, np.int32)
    windows[0, 9:16] = [0, 1, 0, 1, 7, 3, 2]  # " the cat the« cat» sat", an escape sequence, a newline
    windows[1] = 4
    windows[2, 12] = 2
    windows[3, 11:14] = [5, 3, 6]
    return pl.DataFrame(
        {
            "feature": pl.Series([0, 0, 0, 1], dtype=pl.Int32),
            "kind": ["top"] * 4,
            "rank": pl.Series([0, 1, 2, 0], dtype=pl.Int32),
            "activation": pl.Series([9.5, 4.25, 1.0, 2.0], dtype=pl.Float32),
            "token_id": windows[:, 12],
            "window": pl.Series(windows, dtype=pl.Array(pl.Int32, 25)),
            "doc_id": ["aa", "bb", "cc", "dd"],
            "position": pl.Series([3, 40, 0, 1], dtype=pl.Int32),
            "stratum": ["chat", "code", "chat", "chat"],
        }
    )


def on_a_terminal(folder: Path, *words: str, **environment: str) -> str:
    """What `neuroscope WORDS` writes, run in `folder`, when its stdout is a terminal."""
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    script = "import sys; from neuroscope.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *words],
        cwd=folder,
        stdout=theirs,
        env={**known, "TERM": "xterm", "COLUMNS": "100", **environment},
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:  # Linux says so that the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=30) == 0
    return written.decode()
