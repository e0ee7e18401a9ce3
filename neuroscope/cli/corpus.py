"""`neuroscope corpus`: the texts that features are measured on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from neuroscope.cli.flags import as_json, overrides, with_cores, with_corpus, with_pairing
from neuroscope.cli.output import show
from neuroscope.cli.pipeline import run_target
from neuroscope.errors import CorpusError

WIKITEXT = "Salesforce/wikitext"


@click.group()
def corpus() -> None:
    """Texts that features are measured on."""


@corpus.command()
@with_pairing
@with_corpus
@click.option("--dataset", metavar="NAME", help="A data set of the hub instead, such as wikitext.")
@click.option("--config", "subset", metavar="NAME", help="Its configuration, such as wikitext-103-raw-v1.")
@with_cores
def build(
    dataset: str | None, subset: str | None, samples: int | None, cores: int | None, **flags: Any
) -> None:
    """Fetch the sources and cut them into documents. `calibrate` and `labels` do it when needed."""
    if subset and not dataset:
        raise click.UsageError("--config names a configuration of --dataset; give both.")
    sources = [_hub_source(dataset, subset)] if dataset else None
    settings = overrides(
        flags, corpus__sources=sources, calibration__samples=samples, examples__samples=samples
    )
    run_target("corpus", settings, cores=cores)


@corpus.command("show")
@click.option("--pairing", help="Model and SAE by name: a file in config/pairings.")
@as_json
def show_corpus(pairing: str | None, as_json: bool) -> None:
    """What the corpus holds: documents and licence of each source, and what was left out and why."""
    from neuroscope import settings
    from neuroscope.settings.commands import commands_name

    settled = settings.load(pairing)
    with commands_name(settled.pairing.name):
        report = _read_report(settled.results / "corpus.json")
    rows = [
        {**source, "skipped": source["skipped"] if as_json else _reasons(source["skipped"])}
        for source in report["sources"]
    ]
    show(rows, as_json=as_json, empty="The corpus is empty.")


def _read_report(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CorpusError(
            f"There is no corpus at {path.parent}. Build it with: neuroscope corpus build"
        ) from error
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from error
    except ValueError as error:
        raise CorpusError(
            f"{path} is no JSON: {error}. Delete it, then build it anew with: neuroscope corpus build"
        ) from error


def _reasons(skipped: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "none"


def _hub_source(dataset: str, subset: str | None) -> dict[str, str]:
    """A source of config.yaml for a data set of the hub; plain `wikitext` is Salesforce's."""
    repository = WIKITEXT if dataset == "wikitext" else dataset
    folder = f"{subset}/" if subset else ""
    return {
        "name": repository.rpartition("/")[2],
        "stratum": "encyclopedia" if repository == WIKITEXT else "text",
        "source": f"hf://datasets/{repository}/{folder}",
        "format": "wikitext" if repository == WIKITEXT else "files",
    }
