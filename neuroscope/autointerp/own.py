"""Labels that the user has, from a file: checked like any model's, since they end on the same pages."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

from neuroscope.autointerp.evidence import read_firing_rates
from neuroscope.autointerp.labeler import LabelResult
from neuroscope.autointerp.outcome import LabelCounts, Made
from neuroscope.errors import ArtefactError, LabelError
from neuroscope.labels import CONFIDENCES, Label, read_labels, validate_foreign

SOURCE = "file"


def take_own_labels(path: Path, *, stats: Path, out: Path, states: Path) -> LabelCounts:
    """Takes the labels of `path` for the features of `stats`.

    The file is any that `read_labels` reads; whom it names as a source does not count here. A label that may not be
    shown is counted as invalid and left out. Raises ArtefactError for another file, and for one about features that
    this SAE does not have.
    """
    rows = sorted(read_labels(path, SOURCE).labels, key=lambda label: label.feature)
    known = read_firing_rates(stats)
    features = [label.feature for label in rows]
    if beyond := [feature for feature in features if feature not in known]:
        raise ArtefactError(
            f"{path} names feature {beyond[0]}; this SAE has features 0 to {len(known) - 1}. It belongs to "
            "another SAE: set labels.file to labels of this one."
        )
    if twice := [one for one, other in itertools.pairwise(features) if one == other]:
        raise ArtefactError(f"{path} names feature {twice[0]} twice. Leave one label for each feature.")
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    silent = dict.fromkeys(set(known) - set(features), "insufficient")
    made = Made(SOURCE, None, path.name, ((_result(row), changed) for row in rows), silent)
    return made.write(out, states)


def _result(own: Label) -> LabelResult:
    try:
        text = validate_foreign(own.label)
    except LabelError as error:
        return LabelResult(own.feature, "invalid", pattern=str(error))
    return LabelResult(
        own.feature, "labelled", text, own.confidence if own.confidence in CONFIDENCES else None
    )
