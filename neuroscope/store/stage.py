"""The call of the pipeline's last rule: a results folder becomes results.duckdb and its exports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from neuroscope.errors import ArtefactError
from neuroscope.labels import Label, LabelSet, read_labels
from neuroscope.manifest import Fingerprint, SourcesLock
from neuroscope.models.loading import load_tokenizer
from neuroscope.models.text import TokenBytes
from neuroscope.settings import Settings
from neuroscope.store.frames import scores_by_label
from neuroscope.store.writing import build


def build_results(
    settings: Settings,
    *,
    stats: Path,
    examples: Path,
    neighbours: Path,
    report: Path,
    output: Path,
    labels: Sequence[Path] = (),
    states: Sequence[Path] = (),
    scores: Path | None = None,
    logits: Path | None = None,
    labels_json: Path | None = None,
) -> dict[str, int]:
    """Build results.duckdb at `output`, with manifest.json beside it; returns the rows of each table.

    `report` is sweep.json, whose fingerprint becomes the database's. Files of `labels` that do not exist
    are sources without labels; `states` say how features fared with each. `labels_json` becomes the original
    specification's labels.json, one label per feature.
    """
    try:
        sweep = json.loads(report.read_text(encoding="utf-8"))
        fingerprint = Fingerprint.from_dict(sweep.pop("fingerprint"))
    except (OSError, ValueError, KeyError) as error:
        raise ArtefactError(
            f"{report} is not the report of a sweep ({error}). Run the sweep again."
        ) from error
    found: list[Label] = [label for path in labels if path.is_file() for label in read_labels(path).labels]
    if labels_json is not None:
        score_of = scores_by_label(None if scores is None else pl.read_parquet(scores))
        rules = settings.labels
        best = LabelSet(tuple(found)).best(rules.priority, score_of, rules.min_score, rules.replace_low)
        best.to_json(labels_json)
    siblings = (stats, examples, neighbours, report, labels_json)
    return build(
        output,
        fingerprint=fingerprint,
        stats=stats,
        examples=examples,
        tokens=vocabulary(settings),
        labels=found,
        label_states=_together(states),
        scores=scores,
        logits=logits,
        neighbours=neighbours,
        priority=settings.labels.priority,
        min_score=settings.labels.min_score,
        replace_low=settings.labels.replace_low,
        report=sweep,
        siblings={path.name: None for path in siblings if path is not None and path.parent == output.parent},
    )


def _together(states: Sequence[Path]) -> pl.DataFrame | None:
    """The states of every source. Raises ArtefactError for a file that cannot be read."""
    try:
        return pl.concat([pl.read_parquet(path) for path in states]) if states else None
    except (OSError, pl.exceptions.PolarsError) as error:
        names = ", ".join(map(str, states))
        raise ArtefactError(
            f"{names} cannot be read: {error}. Delete them, then make them anew with `snakemake --cores 4 labels`."
        ) from error


def vocabulary(settings: Settings) -> list[bytes]:
    """The bytes each token id of the pairing's model adds to a text."""
    source = SourcesLock(settings.results / "sources.lock.json").resolve(settings.pairing.model)
    tokenizer = load_tokenizer(source.path)
    token_bytes = TokenBytes(tokenizer.backend_tokenizer)
    return [token_bytes(token) for token in range(len(tokenizer))]
