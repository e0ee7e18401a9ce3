"""Which settings each stage of the pipeline reads.

Snakemake re-runs a rule whose `params` changed: a rule's are `params(settings, stage)`, so a changed setting re-runs
the stages that use it and those after them, and nothing else. VERSIONS rise with the meaning of an artefact, since
Snakemake sees an edited script but not an edited library.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from neuroscope.settings import Settings

_MODEL = ("pairing.model", "pairing.dtype", "device", "torch_quantization", "sweep.threads")
_SWEPT = (
    *_MODEL,
    "pairing.layer",
    "pairing.sae.source",
    "pairing.sae.path",
    "pairing.sae.format",
    "pairing.sae.input_norm",
    "pairing.sae.width",
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
_PUBLISHED = (
    "pairing.name",
    "pairing.neuronpedia.model_id",
    "pairing.neuronpedia.sae_id",
    "pairing.sae.width",
    "neuronpedia.base_url",
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
    "calibration": ("pairing.model", "pairing.name", "pairing.layer", "pairing.neuronpedia", *_CHOICE),
    "logits": (
        *_MODEL,
        "pairing.sae.source",
        "pairing.sae.path",
        "pairing.sae.format",
        "pairing.sae.input_norm",
        "pairing.sae.width",
    ),
    "label": ("pairing.model", "labels.examples_per_feature", "examples.sampled"),
    "ask": (
        "pairing.model",
        "labels.labeler",
        "labels.model",
        "labels.base_url",
        "labels.examples_per_feature",
        "examples.sampled",
    ),
    "own_labels": ("labels.file",),
    "neuronpedia": _PUBLISHED,
    "neuronpedia_examples": (*_PUBLISHED, "neuronpedia.examples"),
    "score": (
        "pairing.model",
        "examples.held_out",
        "corpus.seed",
        "labels.labeler",
        "labels.model",
        "labels.base_url",
        "labels.scorer",
        "labels.windows_per_call",
        "labels.score_methods",
        "labels.negatives",
        "labels.near_misses",
    ),
    "verify": (
        *_MODEL,
        "backend",
        "quantization",
        "pairing.layer",
        "pairing.sae.source",
        "pairing.sae.path",
        "pairing.sae.format",
        "pairing.sae.input_norm",
        "pairing.sae.width",
        "pairing.published",
        "pairing.neuronpedia",
        "sweep.window",
        "sweep.batch",
        "sweep.bos",
        "sweep.outlier_norm",
        "verify.tokens",
    ),
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
    "report": (
        "pairing.name",
        "pairing.description",
        "pairing.published",
        "arithmetic",
        "labels.min_score",
        "ranking.stratum",
        "serve.host",
        "serve.features_port",
    ),
    "results": (
        "pairing.model",
        "pairing.name",
        "pairing.layer",
        "pairing.neuronpedia",
        "labels.score",
        *_CHOICE,
    ),
}
"""Stage -> the settings it reads; `*` stands for every item of a list."""

VERSIONS = {
    **dict.fromkeys(USES, 1),
    "documents": 2,
    "shard": 2,
    "calibration_shard": 2,
    "logits": 2,
    "score": 2,
}
"""Stage -> the version of what its artefacts mean."""


def params(settings: Settings, stage: str) -> dict[str, Any]:
    """The settings a stage depends on, as plain values by dotted name, and its version."""
    return {"version": VERSIONS[stage]} | {key: _plain(_value(settings, key)) for key in USES[stage]}


def prompts(purpose: str) -> list[str]:
    """The files that prompts for `purpose` are made from: who edits one has everything asked anew."""
    folder = resources.files("neuroscope.autointerp") / "prompts"
    return sorted(str(path) for path in folder.iterdir() if path.name.startswith(f"{purpose}_"))


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


def imported(settings: Settings, name: str) -> list[str]:
    """A file imported from Neuronpedia as an input: none where it was not, or the SAE in use has no names there."""
    path = settings.results / name
    return [os.path.relpath(path)] if settings.pairing.neuronpedia is not None and path.is_file() else []


def kept(settings: Settings) -> list[str]:
    """The labels of labelers other than the settings': they were made earlier, may have been paid for, and stay.

    No input of a rule: then Snakemake might have them made anew, with settings that are not theirs.
    """
    paths = [settings.results / "labels" / f"{source}.parquet" for source in ("claude", "openai", "file")]
    others = [path for path in paths if path.stem != settings.labels.source]
    return [os.path.relpath(path) for path in others if path.is_file()]


def verification(settings: Settings) -> str | None:
    """What `verify` has left, hashed; None where nobody has asked.

    No input of a rule: then Snakemake would test the numbers anew for whoever shows them.
    """
    path = settings.results / "verification.json"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def own_texts(settings: Settings) -> str | None:
    """What the user's own corpus consists of: names, sizes and times of change, hashed; None without one.

    Snakemake looks at a folder's own time of change, which an edited file in it leaves as it is.
    """
    root = settings.corpus.path
    if root is None:
        return None
    found = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            with suppress(OSError):  # a broken link is counted when the corpus is read
                state = path.stat()
                line = f"{path.relative_to(root)}\0{state.st_size}\0{state.st_mtime_ns}\n"
                found.update(line.encode(errors="surrogateescape"))
    return found.hexdigest()
