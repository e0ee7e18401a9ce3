"""The pipeline's calls: what Neuronpedia publishes about the pairing's SAE, fetched once and written in our shape."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tqdm import tqdm

from neuroscope import imported
from neuroscope.errors import LabelError
from neuroscope.labels import Label, LabelSet
from neuroscope.neuronpedia.activations import strongest
from neuroscope.neuronpedia.explanations import to_labels
from neuroscope.neuronpedia.features import to_frames
from neuroscope.neuronpedia.rows import Tally, read_rows
from neuroscope.settings import Neuronpedia, Settings
from neuroscope.sources import Batches, fetch_batches, replace_atomically

log = logging.getLogger(__name__)

KINDS = ("explanations", "features")
EXAMPLES = "activations"


def import_features(settings: Settings, *, labels: Path, prior: Path, logits: Path, report: Path) -> None:
    """Labels, firing rates and promoted tokens of every feature, and a report with what was left out and why.

    Raises LabelError when the pairing names nothing on Neuronpedia, or something that is not there.
    """
    names, width = names_of(settings), _width(settings)
    fetched = {kind: _fetch(settings, names, kind) for kind in KINDS}
    if not any(batches.files for batches in fetched.values()):
        raise _unknown(settings, names, KINDS)
    tallies = {kind: Tally() for kind in KINDS}
    found = to_labels(_rows(fetched, "explanations", width, tallies["explanations"]), tallies["explanations"])
    rates, tokens = to_frames(_rows(fetched, "features", width, tallies["features"]), tallies["features"])
    LabelSet(tuple(found)).to_parquet(labels, {imported.ABOUT: [imported.name(names)] * len(found)})
    imported.write(prior, rates, names)
    imported.write(logits, tokens, names)
    summary = {
        "neuronpedia": imported.name(names),
        "features": width,
        "labelled": len({label.feature for label in found}),
        "labels": len(found),
        "methods": _methods(found),
        "with_firing_rate": rates["firing_rate"].count(),
        "with_logits": tokens["feature"].n_unique(),
        **_left_out(fetched, tallies),
    }
    _write(report, summary)
    log.info(
        "Neuronpedia: %d labels for %d of %d features, firing rates of %d; left out: %s",
        *(summary[key] for key in ("labels", "labelled", "features", "with_firing_rate")),
        summary["refused"] or "nothing",
    )


def import_examples(settings: Settings, *, output: Path, report: Path) -> None:
    """The strongest `neuronpedia.examples` examples of every feature, and a report with what was left out and why.

    Raises LabelError as `import_features` does.
    """
    names, width, tally = names_of(settings), _width(settings), Tally()
    batches = _fetch(settings, names, EXAMPLES)
    if not batches.files:
        raise _unknown(settings, names, [EXAMPLES])
    rows = _rows({EXAMPLES: batches}, EXAMPLES, width, tally)
    examples = strongest(rows, settings.neuronpedia.examples, tally)
    imported.write(output, examples, names)
    summary = {
        "neuronpedia": imported.name(names),
        "features": width,
        "with_examples": examples["feature"].n_unique(),
        "examples": len(examples),
        **_left_out({EXAMPLES: batches}, {EXAMPLES: tally}),
    }
    _write(report, summary)
    log.info("Neuronpedia: %d examples of %d features", summary["examples"], summary["with_examples"])


def refresh(settings: Settings, *, examples: bool) -> None:
    """Fetches into the cache anew, whatever is there; the stages then find it. Raises LabelError as they do."""
    names, kinds = names_of(settings), (*KINDS, EXAMPLES) if examples else KINDS
    fetched = [_fetch(settings, names, kind, refresh=True) for kind in kinds]
    if not any(batches.files for batches in fetched):
        raise _unknown(settings, names, kinds)


def names_of(settings: Settings) -> Neuronpedia:
    """The pairing's names on Neuronpedia. Raises LabelError when it has none."""
    pairing = settings.pairing
    if pairing.neuronpedia is None:
        raise LabelError(
            f"The pairing {pairing.name} names nothing on Neuronpedia. Set neuronpedia.model_id and neuronpedia.sae_id "
            f"in config/pairings/{pairing.name}.yaml; another SAE or layer, by a flag, has no names."
        )
    return pairing.neuronpedia


def _width(settings: Settings) -> int:
    width = settings.pairing.sae.width
    assert width is not None, "only an SAE given by a flag has no width, and it has no names either"
    return width


def _fetch(settings: Settings, names: Neuronpedia, kind: str, *, refresh: bool = False) -> Batches:
    base = settings.neuronpedia.base_url.rstrip("/")
    ids = "/".join(quote(part, safe="") for part in (names.model_id, names.sae_id))
    batches = fetch_batches(f"{base}/v1/{ids}/{kind}", title=f"Neuronpedia {kind}", refresh=refresh)
    if batches.gaps:
        log.warning("Neuronpedia has no %s batches %s, though later ones", kind, list(batches.gaps))
    return batches


def _rows(
    fetched: Mapping[str, Batches], kind: str, width: int, tally: Tally
) -> Iterator[tuple[int, dict[str, Any]]]:
    files = tqdm(fetched[kind].files, desc=f"reading {kind}", unit="batch", mininterval=1)
    return read_rows(files, width, tally)


def _unknown(settings: Settings, names: Neuronpedia, kinds: Sequence[str]) -> LabelError:
    return LabelError(
        f"Neuronpedia has no {' or '.join(kinds)} of model {names.model_id!r}, source {names.sae_id!r} "
        f"({settings.neuronpedia.base_url}). Correct neuronpedia.model_id or neuronpedia.sae_id in "
        f"config/pairings/{settings.pairing.name}.yaml: they are the two names in an SAE's address on neuronpedia.org."
    )


def _methods(labels: Sequence[Label]) -> dict[str, int]:
    """How many labels were made how: `method (model)`, most first."""
    counts: dict[str, int] = {}
    for label in labels:
        key = f"{label.method or 'unknown'} ({label.model or 'unknown'})"
        counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items(), key=lambda entry: -entry[1]))


def _left_out(fetched: dict[str, Batches], tallies: dict[str, Tally]) -> dict[str, Any]:
    refused = {
        kind: {why: n for why, n in tally.refused.most_common() if n} for kind, tally in tallies.items()
    }
    return {
        "batches": {kind: len(batches.files) for kind, batches in fetched.items()},
        "missing_batches": {kind: list(batches.gaps) for kind, batches in fetched.items() if batches.gaps},
        "rows": {kind: tally.rows for kind, tally in tallies.items()},
        "refused": {kind: reasons for kind, reasons in refused.items() if reasons},
    }


def _write(path: Path, summary: dict[str, Any]) -> None:
    with replace_atomically(path) as temporary:
        temporary.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
