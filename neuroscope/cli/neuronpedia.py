"""`neuroscope labels import`: what others have published about the features of a pairing's SAE."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import as_json, overrides, with_cores, with_pairing
from neuroscope.cli.output import show_record
from neuroscope.cli.pipeline import run_target

if TYPE_CHECKING:
    from neuroscope.settings import Settings


UNPAID = {"labels.labeler": "tokens", "labels.scorer": "none"}
"""An import asks no language model, whatever config.yaml says; labels and scores that are there stay."""


@click.group("import")
def import_labels() -> None:
    """Labels that others have published."""


@import_labels.command("neuronpedia")
@with_pairing
@click.option("--examples", is_flag=True, help="Also the strongest examples, for `neuroscope verify`.")
@click.option("--refresh", is_flag=True, help="Fetch anew what is in the cache.")
@click.option("--offline", is_flag=True, help="Only what is in the cache, as with HF_HUB_OFFLINE=1.")
@with_cores
@as_json
def import_neuronpedia(
    examples: bool, refresh: bool, offline: bool, cores: int | None, as_json: bool, **flags: Any
) -> None:
    """Fetch the labels, firing rates and promoted tokens that Neuronpedia publishes about the pairing's SAE.

    They serve at once: labels next to our own, firing rates until `neuroscope calibrate run` measures them here.
    """
    if refresh and offline:
        raise click.UsageError("--refresh fetches anew, --offline forbids it: give one of them.")
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read by the pipeline's jobs, which are processes of their own
    from neuroscope import neuronpedia, settings

    given = overrides(flags)
    settled = settings.load(overrides=given)
    neuronpedia.names_of(settled)
    if refresh:
        neuronpedia.refresh(settled, examples=examples)
    targets = ["neuronpedia", *(["neuronpedia_examples"] if examples else [])]
    for target in targets:
        run_target(target, given, cores=cores, anew=refresh)
    if _has_full_run(settled):
        run_target("results", {**given, **UNPAID}, cores=cores, by_time=True)
    report = _report(settled.results / "neuronpedia.json")
    if examples:
        report["examples"] = _report(settled.results / "neuronpedia_examples.json")
    show_record(report if as_json else {key: _words(value) for key, value in report.items()}, as_json=as_json)


def _has_full_run(settled: Settings) -> bool:
    """Whether results.duckdb is there with labels, which the imported ones then join."""
    return all((settled.results / name).is_file() for name in ("results.duckdb", "labels.json"))


def _report(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _words(value: Any) -> Any:
    """A table of counts as `3 of this, 2 of that`."""
    if isinstance(value, dict):
        return ", ".join(
            f"{key}: {_words(entry)}" if isinstance(entry, dict) else f"{_words(entry)} {key}"
            for key, entry in value.items()
        )
    return value
