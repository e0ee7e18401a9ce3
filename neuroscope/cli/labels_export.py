"""`neuroscope labels export`: the labels of the results, with source and score, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import overrides, with_pairing
from neuroscope.cli.labels_read import labels_of_source, scored_labels
from neuroscope.cli.results import need_labels, open_own_results
from neuroscope.cli.terminal import is_terminal, visible
from neuroscope.errors import ConfigError, LabelError

if TYPE_CHECKING:
    from neuroscope.label_export import Scored
    from neuroscope.settings import Settings

FORMATS = ("json", "csv", "parquet", "neuronpedia")


@click.command("export")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="json",
    show_default=True,
    help="neuronpedia: the rows of its explanations, a JSON object a line.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file instead of stdout.")
@click.option("--source", metavar="NAME", help="Labels of this source instead of those that are shown.")
@click.option("--all-sources", is_flag=True, help="Every label of every source.")
@with_pairing
def export_labels(form: str, out: Path | None, source: str | None, all_sources: bool, **flags: Any) -> None:
    """Write labels, their sources and scores for other programs.

    By default the label that is shown for each feature. A name that ends in .gz is compressed. JSON, CSV and Parquet
    are read again by `labels show --labels`.
    """
    from neuroscope import settings

    if source is not None and all_sources:
        raise click.UsageError("--source and --all-sources exclude each other; give one")
    if form == "parquet" and out is None:
        raise click.UsageError("Parquet is no text: name its file with --out")
    if out is not None and out.suffix == ".gz" and form == "parquet":
        raise click.UsageError("Parquet is compressed already: leave .gz out of the name")
    settled = settings.load(overrides=overrides(flags))
    chosen = _chosen(settled, source, all_sources)
    if out is None:
        _print(_text(form, chosen, settled))
        return
    try:
        _write(out, form, chosen, settled)
    except OSError as error:
        raise LabelError(
            f"{out} cannot be written: {error.strerror}. Name another file with --out."
        ) from error
    click.echo(f"{len(chosen):,} labels in {visible(str(out))}", err=True)


def _chosen(settings: Settings, source: str | None, all_sources: bool) -> list[Scored]:
    with open_own_results(settings) as results:
        need_labels(results, settings)
        if source is not None:
            return labels_of_source(results, source)
        return scored_labels(results, shown_only=not all_sources)


def _text(form: str, labels: list[Scored], settings: Settings) -> str:
    from neuroscope import label_export

    if form == "neuronpedia":
        names = settings.pairing.neuronpedia
        if names is None:
            raise ConfigError(
                f"The pairing {settings.pairing.name} has no names on Neuronpedia, which every row carries. Add "
                f"neuronpedia: {{model_id: ..., sae_id: ...}} to config/pairings/{settings.pairing.name}.yaml."
            )
        return label_export.as_neuronpedia(labels, names.model_id, names.sae_id)
    return label_export.as_csv(labels) if form == "csv" else label_export.as_json(labels)


def _write(out: Path, form: str, labels: list[Scored], settings: Settings) -> None:
    from neuroscope import label_export

    if form == "parquet":
        label_export.write_parquet(out, labels)
    else:
        label_export.write_text(out, _text(form, labels, settings))


def _print(text: str) -> None:
    """UTF-8 whatever the locale, for a program that reads on; a terminal gets no character that steers it."""
    if is_terminal():
        text = "".join(f"{visible(line)}\n" for line in text.split("\n")[:-1])
    click.echo(text.encode("utf-8", "replace"), nl=False)
