"""`neuroscope labels`: names of features, and how far they can be trusted."""

from __future__ import annotations

from typing import Any

import click

from neuroscope.cli.flags import Number, as_json, overrides, with_cores, with_corpus, with_pairing
from neuroscope.cli.labels_diff import diff_labels
from neuroscope.cli.labels_export import export_labels
from neuroscope.cli.labels_score import score_labels
from neuroscope.cli.labels_show import show_labels
from neuroscope.cli.neuronpedia import import_labels
from neuroscope.cli.output import show_record
from neuroscope.cli.pipeline import run_target

COLLECTED = 20
"""Examples that config.yaml collects for each feature: a labeler that is to see more needs more collected."""


@click.group()
def labels() -> None:
    """Names of features and their scores."""


for command in (score_labels, show_labels, diff_labels, export_labels, import_labels):
    labels.add_command(command)


@labels.command()
@with_pairing
@with_corpus
@click.option("--examples-per-feature", type=click.IntRange(1), help="Strongest examples the labeler sees.")
@click.option(
    "--labeler",
    metavar="NAME",
    help="tokens (no key needed), claude or a Claude model id, openai or file (see labels.*).",
)
@click.option("--concurrency", type=click.IntRange(1), help="Calls to a language model in flight at once.")
@click.option("--batch/--no-batch", default=None, help="Ask Claude by batch: half the price, within a day.")
@click.option(
    "--max-cost",
    type=Number(0),
    metavar="USD",
    help="Stop labels before passing this cost, and their scores likewise.",
)
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
    from neuroscope.stages.scores import estimate_scores_to_come

    settled = settings.load(overrides=given)
    show_record(estimate_labels(settled) | estimate_scores_to_come(settled), as_json=as_json)
