"""A results folder of any width, made up: the Parquet files that the last stage reads, of realistic sizes.

Tokens are drawn from the model's real vocabulary, frequent ones often, so that texts have the lengths of texts. Nothing
in it was measured; the same seed makes the same files. As a program: builds the database of a folder's inputs.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope import settings
from neuroscope.autointerp.score_rows import SCHEMA as SCORES
from neuroscope.examples import HALF_WINDOW, KINDS, WINDOW
from neuroscope.labels import SCHEMA as LABELS
from neuroscope.labels import STATES_SCHEMA
from neuroscope.manifest import Fingerprint
from neuroscope.stats import HISTOGRAM_BINS
from neuroscope.store.stage import build_results
from neuroscope.sweep.neighbours import SCHEMA as NEIGHBOURS

PAIRING = "smollm2-135m"
VOCABULARY = 49_152
STRATA = ("all", "chat", "code", "conversation", "encyclopedia")
FIRST = 300
"""Before it are control tokens and single bytes."""
TOKENS = 8_000_000
"""Tokens a stratum is said to have."""
PER_KIND = dict(zip(KINDS, (20, 5, 50), strict=True))
"""Examples of a feature: 75, the defaults of config.yaml."""
SOURCES = ("claude", "tokens")
WORDS = ("names", "places", "verbs", "digits", "quotes", "code", "French", "plural", "before", "law", "music")

Ints = NDArray[np.int32]


def settings_in(folder: Path) -> settings.Settings:
    """Those of the pairing whose vocabulary is used, with its results in `folder`."""
    settled = settings.load(PAIRING)
    return replace(settled, results=folder)


def write_inputs(folder: Path, fingerprint: Fingerprint) -> dict[str, Any]:
    """A sweep's artefacts and labels, of as many features as `fingerprint` says; arguments of `build_results`."""
    folder.mkdir(parents=True, exist_ok=True)
    d_sae, random = fingerprint.d_sae, np.random.default_rng(6)
    frames = {
        "stats": _stats(d_sae, random),
        "examples": _examples(d_sae, random),
        "neighbours": _neighbours(d_sae, random),
        "scores": _scores(d_sae, random),
        "logits": _logits(d_sae, random),
        **{source: _labels(d_sae, source, random) for source in SOURCES},
        **{f"{source}.states": _states(d_sae, source) for source in SOURCES},
    }
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
    strata = {name: {"tokens": TOKENS} for name in STRATA}
    report = {"fingerprint": fingerprint.to_dict(), "strata": strata}
    (folder / "sweep.json").write_text(json.dumps(report))
    return inputs_in(folder)


def inputs_in(folder: Path) -> dict[str, Any]:
    """What `write_inputs` has left there."""
    one_each = ("stats", "examples", "neighbours", "scores", "logits")
    return {
        **{name: folder / f"{name}.parquet" for name in one_each},
        "report": folder / "sweep.json",
        "labels": [folder / f"{source}.parquet" for source in SOURCES],
        "states": [folder / f"{source}.states.parquet" for source in SOURCES],
        "labels_json": folder / "labels.json",
    }


def build(folder: Path) -> dict[str, float]:
    """results.duckdb of the inputs in `folder`; the seconds it took, and the process' largest memory."""
    output = folder / "results.duckdb"
    began = time.perf_counter()
    build_results(settings_in(folder), output=output, **inputs_in(folder))
    taken = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": taken, "peak_mb": peak / 1e6, "file_mb": output.stat().st_size / 1e6}


def fingerprint(d_sae: int) -> Fingerprint:
    """Of no SAE that exists."""
    return Fingerprint(
        model="made up",
        model_revision=None,
        tokenizer_sha256="0" * 64,
        sae="made up",
        sae_sha256="0" * 64,
        layer=20,
        d_in=576,
        d_sae=d_sae,
    )


def _tokens(count: int | tuple[int, ...], random: np.random.Generator) -> Ints:
    """Ids as often as words are: the n-th most frequent 1/n as often as the first."""
    ranks = np.exp(random.uniform(0, np.log(VOCABULARY - FIRST), count)).astype(np.int32)
    return ranks + np.int32(FIRST - 1)


def _stats(d_sae: int, random: np.random.Generator) -> pl.DataFrame:
    n_fired = np.exp(random.uniform(0, np.log(TOKENS / 10), d_sae)).astype(np.int64)
    mean = random.gamma(2, 2, d_sae)
    shape = np.exp(-(((np.arange(HISTOGRAM_BINS) - 20) / 4.0) ** 2))
    frames = []
    for stratum in STRATA:
        n = n_fired if stratum == "all" else n_fired // (len(STRATA) - 1)
        histogram = (n[:, None] * (shape / shape.sum()) * random.uniform(0.5, 1.5, (d_sae, 1))).astype(
            np.int64
        )
        frames.append(
            pl.DataFrame(
                {
                    "feature": np.arange(d_sae, dtype=np.int32),
                    "stratum": [stratum] * d_sae,
                    "n_tokens": np.full(d_sae, TOKENS, np.int64),
                    "n_fired": n,
                    "sum": n * mean,
                    "sum_sq": n * mean**2 * 1.3,
                    "max_activation": mean * 8,
                    "histogram": pl.Series(histogram).arr.to_list(),
                }
            )
        )
    return pl.concat(frames).sort("feature", "stratum")


def _examples(d_sae: int, random: np.random.Generator) -> pl.DataFrame:
    per_feature = sum(PER_KIND.values())
    n = d_sae * per_feature
    windows = _tokens((n, WINDOW), random)
    own = _tokens((d_sae, 4), random)  # a feature fires on few different tokens
    windows[:, HALF_WINDOW] = own[np.repeat(np.arange(d_sae), per_feature), random.integers(0, 4, n)]
    cut = random.integers(0, 10 * HALF_WINDOW, n)  # a tenth of the windows begin with their document
    windows[np.arange(WINDOW)[None, :] < (HALF_WINDOW - cut)[:, None]] = -1
    rank = np.concatenate([np.arange(count) for count in PER_KIND.values()])
    kind = np.repeat(list(PER_KIND), list(PER_KIND.values()))
    documents = pl.Series([f"{number:016x}" for number in random.integers(0, 2**63, 50_000)])
    return pl.DataFrame(
        {
            "feature": np.repeat(np.arange(d_sae, dtype=np.int32), per_feature),
            "kind": pl.Series(np.tile(kind, d_sae).tolist()),
            "rank": np.tile(rank, d_sae).astype(np.int32),
            "activation": random.gamma(2, 2, n).astype(np.float32),
            "token_id": windows[:, HALF_WINDOW],
            "window": pl.Series(windows, dtype=pl.Array(pl.Int32, WINDOW)),
            "doc_id": documents.gather(random.integers(0, len(documents), n)),
            "position": random.integers(0, 256, n).astype(np.int32),
            "stratum": pl.Series(STRATA[1:]).gather(random.integers(0, len(STRATA) - 1, n)),
        }
    ).sort("feature", "kind", "rank")


def _neighbours(d_sae: int, random: np.random.Generator, count: int = 10) -> pl.DataFrame:
    cofiring = -np.sort(-random.uniform(0, 1, (d_sae, count)), axis=1)
    columns = (
        np.repeat(np.arange(d_sae), count),
        random.integers(0, d_sae, d_sae * count),
        cofiring.ravel(),
        random.integers(3, 500, d_sae * count),
    )
    return pl.DataFrame(dict(zip(NEIGHBOURS, columns, strict=True))).cast(pl.Schema(NEIGHBOURS))


def _logits(d_sae: int, random: np.random.Generator, count: int = 10) -> pl.DataFrame:
    ids = _tokens(2 * d_sae * count, random)
    return pl.DataFrame(
        {
            "feature": np.repeat(np.arange(d_sae, dtype=np.int32), 2 * count),
            "kind": np.tile(np.repeat(["promoted", "suppressed"], count), d_sae).tolist(),
            "rank": np.tile(np.arange(count, dtype=np.int32), 2 * d_sae),
            "token_id": ids,
            "token": [f" t{number}" for number in ids.tolist()],
            "weight": random.gamma(2, 1, len(ids)).astype(np.float32),
        }
    )


def _labelled(d_sae: int, source: str) -> list[int]:
    """Five of six features, not the same ones for every source."""
    return [feature for feature in range(d_sae) if (feature + len(source)) % 6]


def _labels(d_sae: int, source: str, random: np.random.Generator) -> pl.DataFrame:
    words = random.integers(0, len(WORDS), (d_sae, 8)).tolist()
    rows = [
        (
            feature,
            source,
            " ".join([WORDS[word] for word in words[feature]] + [str(feature)]),
            "high",
            "a-model-of-1" if source == "claude" else None,
            "prompt" if source == "claude" else "distinctive tokens",
            "2026-01-01T00:00:00Z",
        )
        for feature in _labelled(d_sae, source)
    ]
    return pl.DataFrame(rows, schema=LABELS, orient="row")


def _states(d_sae: int, source: str) -> pl.DataFrame:
    labelled = set(_labelled(d_sae, source))
    rows = [
        (feature, source, *(("labelled", None) if feature in labelled else ("insufficient", "3 examples")))
        for feature in range(d_sae)
    ]
    return pl.DataFrame(rows, schema=STATES_SCHEMA, orient="row")


def _scores(d_sae: int, random: np.random.Generator) -> pl.DataFrame:
    rows = [
        (feature, source, method, score, score - 0.1, min(score + 0.1, 1.0), 30, 10, 15, 5, 0)
        for source, methods in (("claude", ("detection", "fuzzing")), ("tokens", ("rule", "rule_fuzzing")))
        for method in methods
        for feature, score in zip(
            _labelled(d_sae, source), random.uniform(0.4, 1, d_sae).tolist(), strict=False
        )
    ]
    return pl.DataFrame(rows, schema=SCORES, orient="row")


if __name__ == "__main__":
    print(json.dumps(build(Path(sys.argv[1]))))
