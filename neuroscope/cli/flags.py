"""Flags shared by commands, and what they mean as settings: each flag is one dotted key of config.yaml.

A flag that is not given stays None and leaves the setting alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]

KEYS = {
    "pairing": "pairing",
    "model": "model",
    "sae": "sae.source",
    "sae_path": "sae.path",
    "layer": "layer",
    "sae_width": "sae.width",
    "input_norm": "sae.input_norm",
    "device": "device",
    "backend": "backend",
    "quantization": "quantization",
    "corpus_path": "corpus.path",
    "host": "serve.host",
    "port": "serve.port",
    "features_port": "serve.features_port",
    "log_format": "serve.log_format",
    "top_k": "ranking.top_k",
    "feature_filter": "ranking.filter",
    "filter_threshold": "ranking.threshold",
    "calibration_path": "ranking.stats",
    "labeler": "labels.labeler",
    "concurrency": "labels.concurrency",
    "batch": "labels.batch",
    "max_cost": "labels.max_cost_usd",
    "examples_per_feature": "labels.examples_per_feature",
    "score": "labels.score",
    "scorer": "labels.scorer",
    "methods": "labels.score_methods",
}
"""Flag (as a Python name) -> key of config.yaml."""

PLACES = ("model", "sae", "corpus_path", "calibration_path")
"""Flags that may be a path: relative to where the command runs; settings are relative to the repository."""


class Number(click.FloatRange):
    """A number of a range: click's own takes `nan` for one of any range, and `inf` where there is no end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def overrides(flags: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The settings that `flags` change, as dotted keys; `more` has dotted keys with `__` for the dot."""
    given = {
        KEYS[name]: _place(value) if name in PLACES else value
        for name, value in flags.items()
        if name in KEYS and value is not None
    }
    return given | {name.replace("__", "."): value for name, value in more.items() if value is not None}


def _place(value: str | Path) -> str:
    path = Path(value).expanduser()
    return str(path.absolute()) if path.exists() else str(value)


def with_pairing(command: Command) -> Command:
    """Adds the flags that choose a pairing or replace single fields of it."""
    for option in reversed(
        (
            click.option("--pairing", help="Model and SAE by name: a file in config/pairings."),
            click.option(
                "--model", metavar="SOURCE", help="Language model: org/name, hf://, pypi:// or a path."
            ),
            click.option("--sae", metavar="SOURCE", help="SAE: org/name, hf:// or a path."),
            click.option("--sae-path", metavar="PATH", help="File inside the SAE's source."),
            click.option("--sae-layer", "--layer", "layer", type=click.IntRange(0), help="Layer, from 0."),
            click.option("--sae-width", metavar="N", help="Number of features, such as 16k."),
            click.option(
                "--input-norm",
                metavar="NAME",
                help="none, rms, layer_norm or constant_norm_rescale instead of the release's own.",
            ),
            click.option("--device", help="auto (CUDA, then MPS, then CPU), cpu, mps or cuda[:N]."),
            click.option(
                "--backend",
                type=click.Choice(["auto", "torch", "llamacpp"]),
                help="What runs the model: llamacpp reads GGUF files (extra llamacpp).",
            ),
            click.option(
                "--quantization",
                metavar="TYPE",
                help="Weights in fewer bits: int8, int4, a GGUF type as q4k; `neuroscope verify` says what they cost.",
            ),
        )
    ):
        command = option(command)
    return command


def with_corpus(command: Command) -> Command:
    """Adds the flags that choose the texts and how many of them are read."""
    path = click.Path(exists=True, path_type=Path)
    for option in reversed(
        (
            click.option("--corpus-path", type=path, help="Your own texts instead of the pairing's sources."),
            click.option(
                "--samples",
                type=click.IntRange(1),
                help="Documents to read, at least: whole chunks of sweep.chunk_documents are.",
            ),
        )
    ):
        command = option(command)
    return command


def with_cores(command: Command) -> Command:
    """Adds --cores, for commands that run the pipeline."""
    return click.option("--cores", type=click.IntRange(1), help="CPU cores of the pipeline (default: all).")(
        command
    )


as_json = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
