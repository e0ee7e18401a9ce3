"""What a sweep saw, in figures: sweep.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from neuroscope.manifest import Fingerprint
from neuroscope.stats import FeatureStats
from neuroscope.sweep.merging import ALL, Merged
from neuroscope.sweep.plan import Chunk, SweepOptions


def summary(
    merged: Merged, fingerprint: Fingerprint, chunks: Sequence[Chunk], options: SweepOptions
) -> dict[str, Any]:
    """Everything about the sweep that is not per feature."""
    documents = {**merged.documents, ALL: sum(merged.documents.values())}
    return {
        "fingerprint": fingerprint.to_dict(),
        "options": asdict(options),
        "chunks": len(chunks),
        "strata": {
            stratum: {"documents": documents[stratum], **_stratum(stats)}
            for stratum, stats in merged.stats.items()
        },
        "coverage": [{"tokens": tokens, "features": features} for tokens, features in merged.coverage],
        "examples": {kind: len(firings) for kind, firings in merged.examples.items()},
        "pool": len(merged.pool),
        "quarantined": merged.quarantined,
        "outliers": merged.outliers,
        "halved": merged.halved,
    }


def _stratum(stats: FeatureStats) -> dict[str, Any]:
    fired = int(stats.n_fired.sum())
    return {
        "tokens": stats.n_tokens,
        "mean_l0": fired / stats.n_tokens if stats.n_tokens else None,
        "silent_features": int((stats.n_fired == 0).sum()),
        "l0_histogram": stats.l0_histogram.tolist(),
    }
