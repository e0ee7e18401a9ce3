"""`neuroscope labels`: names of features, and how far they can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from neuroscope.cli.flags import as_json, overrides, with_cores, with_corpus, with_pairing
from neuroscope.cli.labels_diff import diff_labels
from neuroscope.cli.labels_export import export_labels
from neuroscope.cli.labels_show import LABELS_FILE, rows_of_file, rows_of_results, show_labels
from neuroscope.cli.neuronpedia import import_labels
from neuroscope.cli.output import show, show_record
from neuroscope.cli.pipeline import run_target
from neuroscope.errors import LabelError

COLLECTED = 20
"""Examples that config.yaml collects for each feature: a labeler that is to see more needs more collected."""


@click.group()
def labels() -> None:
    """Names of features and their scores."""


for command in (show_labels, diff_labels, export_labels, import_labels):
    labels.add_command(command)


@labels.command()
@with_pairing
@with_corpus
@click.option("--examples-per-feature", type=click.IntRange(1), help="Strongest examples the labeler sees.")
@click.option(
    "--labeler",
    metavar="NAME",
    help="tokens (no key needed), a Claude model id, openai or file (see labels.*).",
)
@click.option("--concurrency", type=click.IntRange(1), help="Calls to a language model in flight at once.")
@click.option("--batch/--no-batch", default=None, help="Ask Claude by batch: half the price, within a day.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="Stop before passing this cost.")
@click.option(
    "--dry-run", is_flag=True, help="Only tell calls, tokens, dollars and seconds; nothing is paid."
)
@click.option("--score/--no-score", default=None, help="Also run detection scoring.")
@with_cores
@as_json
def generate(samples: int | None, cores: int | None, dry_run: bool, as_json: bool, **flags: Any) -> None:
    """Collect max-activating examples, name every feature and write results.duckdb, statistics included.

    With --dry-run, prompts are made from the examples there are, and --json is JSON instead of a table.
    """
    more = flags["examples_per_feature"]
    collected = more if more is not None and more > COLLECTED else None
    given = overrides(flags, examples__samples=samples, examples__per_feature=collected)
    if not dry_run:
        run_target("labels", given, cores=cores)
        return
    from neuroscope import settings
    from neuroscope.stages.asking import estimate_labels

    show_record(estimate_labels(settings.load(overrides=given)), as_json=as_json)


@labels.command()
@with_pairing
@click.option("--labels", "path", type=LABELS_FILE, help="A labels.json whose labels are looked at instead.")
@click.option("--dry-run", is_flag=True, help="Only tell calls and dollars; nothing is paid.")
@with_cores
@as_json
def score(path: Path | None, cores: int | None, dry_run: bool, as_json: bool, **flags: Any) -> None:
    """Score labels by detection on held-out text: all in figures, or each of a labels.json.

    A label is judged by the rule it was made with; words without a rule need a reader, which this version lacks.
    """
    from neuroscope import settings

    if dry_run:
        show_record({"method": "rule", "calls": 0, "usd": 0.0}, as_json=as_json)
        return
    given = overrides(flags, labels__score=True)
    settled = settings.load(overrides=given)
    run_target("scores", given, cores=cores)
    rows = rows_of_results(settled)
    if path is None:
        show_record(_summary(rows, settled.labels.min_score), as_json=as_json)
        return
    known = {(row["feature"], row["label"]): row for row in rows}
    asked = [
        known.get(
            (row["feature"], row["label"]), {**row, "balanced_accuracy": None}
        )  # not the file's own word
        for row in rows_of_file(path)
    ]
    if all(row["balanced_accuracy"] is None for row in asked):
        raise LabelError(
            f"No label of {path} is among those of the results, so none has a rule to be judged by."
        )
    show(asked, as_json=as_json)


def _summary(rows: list[dict[str, Any]], min_score: float) -> dict[str, Any]:
    scores = [row["balanced_accuracy"] for row in rows if row["balanced_accuracy"] is not None]
    return {
        "labels": len(rows),
        "scored": len(scores),
        "mean_balanced_accuracy": sum(scores) / len(scores) if scores else None,
        "under_min_score": sum(score < min_score for score in scores),
        "min_score": min_score,
    }
