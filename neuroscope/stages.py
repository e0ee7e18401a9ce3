"""What each stage of the pipeline depends on among the settings, and the few stages that are no other module's.

Snakemake re-runs a rule whose `params` changed: a rule's are `params(settings, stage)`, so a changed setting re-runs
the stages that use it and those after them, and nothing else. VERSIONS rise with the meaning of an artefact, since
Snakemake sees an edited script but not an edited library.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from neuroscope import store
from neuroscope.errors import ArtefactError
from neuroscope.manifest import IDENTITY, Fingerprint, SourcesLock
from neuroscope.settings import Pairing, Settings
from neuroscope.sources import cache_dir, file_sha256, replace_atomically
from neuroscope.store.stage import build_results

_MODEL = ("pairing.model", "pairing.dtype", "device", "quantization", "sweep.threads")
_SWEPT = (
    *_MODEL,
    "pairing.layer",
    "pairing.sae.source",
    "pairing.sae.path",
    "pairing.sae.format",
    "pairing.sae.input_norm",
    "corpus.seed",
    "corpus.sources.*.stratum",
    "corpus.sources.*.share",
    "corpus.chat.share",
    "sweep.window",
    "sweep.batch",
    "sweep.bos",
    "sweep.outlier_norm",
    "sweep.chunk_documents",
    "examples.per_feature",
    "examples.sampled",
    "examples.held_out",
    "examples.pool",
)
_CHOICE = ("labels.priority", "labels.min_score", "labels.replace_low")

USES: dict[str, tuple[str, ...]] = {
    "documents": (
        "corpus.path",
        "corpus.document_chars",
        "corpus.sources.*.name",
        "corpus.sources.*.stratum",
        "corpus.sources.*.source",
        "corpus.sources.*.format",
        "corpus.sources.*.max_documents",
        "corpus.sources.*.licence",
    ),
    "chat": (
        "pairing.model",
        "pairing.dtype",
        "device",
        "corpus.chat.documents",
        "corpus.chat.max_tokens",
        "corpus.chat.temperature",
        "corpus.chat.top_k",
        "corpus.chat.seed",
        "corpus.chat.batch",
    ),
    "corpus": ("pairing.model", "pairing.licence"),
    "sae": ("pairing.sae.source", "pairing.sae.path", "pairing.sae.format"),
    "shard": (*_SWEPT, "examples.samples", "sweep.shards"),
    "examples": (*_SWEPT, "examples.samples"),
    "calibration_shard": (*_SWEPT, "calibration.samples", "sweep.shards"),
    "calibration_merge": (*_SWEPT, "calibration.samples"),
    "calibration": ("pairing.model", *_CHOICE),
    "train": (
        *_MODEL,
        "pairing.layer",
        "sweep.window",
        "sweep.batch",
        "sweep.bos",
        "sweep.outlier_norm",
        "sweep.chunk_documents",
        *(
            f"training.{name}"
            for name in (
                "tokens",
                "width",
                "steps",
                "batch",
                "k",
                "lr",
                "warmup",
                "decay",
                "aux_k",
                "aux_weight",
                "dead_tokens",
                "held_out",
                "seed",
            )
        ),
    ),
    "results": ("pairing.model", *_CHOICE),
}
"""Stage -> the settings it reads; `*` stands for every item of a list."""

VERSIONS = dict.fromkeys(USES, 1)
"""Stage -> the version of what its artefacts mean."""


def params(settings: Settings, stage: str) -> dict[str, Any]:
    """The settings a stage depends on, as plain values by dotted name, and its version."""
    return {"version": VERSIONS[stage]} | {key: _plain(_value(settings, key)) for key in USES[stage]}


def _value(branch: Any, key: str) -> Any:
    """The value at a dotted name; None below a section that is switched off."""
    name, _, rest = key.partition(".")
    if branch is None or not name:
        return branch
    if name == "*":
        return [_value(item, rest) for item in branch]
    return _value(getattr(branch, name), rest)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def fetch_sae(settings: Settings, *, output: Path) -> None:
    """Fetches and checks the pairing's SAE; `output` becomes its provenance.json."""
    sae = settings.pairing.sae
    found = SourcesLock(settings.results / "sources.lock.json").resolve(sae.uri)
    provenance = {
        "path": str(found.path),
        "source": found.uri,
        "revision": found.revision,
        "sha256": found.sha256 or file_sha256(found.path),
        "format": sae.format,
    }
    with replace_atomically(output) as temporary:
        temporary.write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")


def publish(
    settings: Settings,
    *,
    stats: Path,
    stats_json: Path,
    examples: Path,
    neighbours: Path,
    report: Path,
    output: Path,
    labels: Sequence[Path] = (),
    scores: Path | None = None,
    logits: Path | None = None,
    labels_json: Path | None = None,
) -> None:
    """The end of a full run: results.duckdb, its manifest and exports, and those where `serve` looks by default."""
    build_results(
        settings,
        stats=stats,
        examples=examples,
        neighbours=neighbours,
        report=report,
        output=output,
        labels=labels,
        scores=scores,
        logits=logits,
        labels_json=labels_json,
    )
    name = export_name(settings.pairing)
    _export(stats_json, cache_dir() / "calibration" / f"{name}_stats.json")
    if labels_json is not None:
        _export(labels_json, cache_dir() / "labels" / f"{name}_autointerp.json")


def publish_calibration(
    settings: Settings,
    *,
    stats: Path,
    stats_json: Path,
    examples: Path,
    neighbours: Path,
    report: Path,
    output: Path,
) -> None:
    """The end of a calibration: results.duckdb with statistics and no labels.

    Leaves a database alone that has at least as many tokens of the same model, SAE and layer: that of a full run.
    """
    _export(stats_json, cache_dir() / "calibration" / f"{export_name(settings.pairing)}_stats.json")
    if _holds_more(output, report):
        return
    build_results(
        settings, stats=stats, examples=examples, neighbours=neighbours, report=report, output=output
    )


def export_name(pairing: Pairing) -> str:
    """How the original specification names a pairing's files in the cache: {model}_{sae}."""
    names = pairing.neuronpedia
    return f"{names.model_id}_{names.sae_id}" if names is not None else f"{pairing.name}_layer{pairing.layer}"


def _export(path: Path, target: Path) -> None:
    with replace_atomically(target) as temporary:
        shutil.copyfile(path, temporary)


def _holds_more(database: Path, report: Path) -> bool:
    sweep = json.loads(report.read_text(encoding="utf-8"))
    try:
        with store.open_results(database) as results:
            differs = results.fingerprint().mismatches(
                Fingerprint.from_dict(sweep["fingerprint"]), keys=IDENTITY
            )
            return not differs and results.stats().n_tokens >= sweep["strata"]["all"]["tokens"]
    except ArtefactError:
        return False
