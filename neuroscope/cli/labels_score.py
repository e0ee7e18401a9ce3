"""`neuroscope labels score`: how far labels can be trusted, those of the results or somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from neuroscope.cli.flags import Number, as_json, overrides, with_cores, with_pairing
from neuroscope.cli.output import print_json, show, show_record
from neuroscope.cli.pipeline import run_target

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("score")
@with_pairing
@click.option("--labels", "path", type=FILE, help="A labels.json whose labels are judged instead.")
@click.option(
    "--scorer", metavar="NAME", help="Who judges labels in words: a Claude model id, openai or none."
)
@click.option(
    "--method",
    "methods",
    type=click.Choice(["detection", "fuzzing"]),
    multiple=True,
    help="Judge windows, or marked tokens; may be given twice.",
)
@click.option("--concurrency", type=click.IntRange(1), help="Calls to a language model in flight at once.")
@click.option("--batch/--no-batch", default=None, help="Ask Claude by batch: half the price, within a day.")
@click.option("--max-cost", type=Number(0), metavar="USD", help="Stop before passing this cost.")
@click.option(
    "--dry-run", is_flag=True, help="Only tell calls, tokens, dollars and seconds; nothing is paid."
)
@with_cores
@as_json
def score_labels(
    path: Path | None,
    methods: tuple[str, ...],
    cores: int | None,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Score labels on held-out text, in figures by source and method; with --labels also each of a labels.json.

    A label is judged by the rule it was made with. Words without a rule are judged by a language model: --scorer, else
    the labeler when it is one.
    """
    from neuroscope import settings
    from neuroscope.stages.scores import estimate_scores, score_figures, score_file

    given = overrides({**flags, "methods": list(methods) or None}, labels__score=True)
    settled = settings.load(overrides=given)
    if dry_run:
        show_record(estimate_scores(settled, path), as_json=as_json)
        return
    if path is None:
        run_target("scores", given, cores=cores)
        show(score_figures(settled), as_json=as_json, empty="There are no labels.")
        return
    run_target("examples", given, cores=cores)
    figures, rows = score_file(settled, path)
    if as_json:
        print_json({"figures": figures, "labels": rows})
        return
    show(rows, as_json=False, empty="There are no labels.")
    click.echo()
    show(figures, as_json=False)
