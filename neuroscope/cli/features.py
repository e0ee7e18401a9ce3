"""`neuroscope features`: what is known about features, one by one, by their labels, or by what is largest.

Where it is asked is said in `feature_source.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from neuroscope.cli.feature_page import feature_lines, record_of
from neuroscope.cli.feature_source import feature_source, with_source
from neuroscope.cli.flags import as_json
from neuroscope.cli.output import fitted, print_json, show
from neuroscope.cli.terminal import columns_here, echo, has_colour

SORTS = {"score": "score", "rate": "firing_rate", "max": "max"}
"""What `--by` takes -> what the server sorts by."""

limited = click.option(
    "--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="Features shown at most."
)


@click.group()
def features() -> None:
    """What is known about features: from the running server, else from the results."""


@features.command("show")
@click.argument("index", type=click.IntRange(0))
@click.option("--examples", type=click.IntRange(0, 200), default=5, show_default=True, help="Examples shown.")
@with_source
@as_json
def show_feature(index: int, examples: int, as_json: bool, **flags: Any) -> None:
    """All that is known about one feature.

    Its labels with their scores, how it fires on each kind of text, the tokens that it promotes and suppresses, what
    fires with it, and the texts on which it fires most.
    """
    query = {"examples": "top", "n": examples} if examples else {"examples": "none"}
    with feature_source(flags) as source:
        page = source.feature(index, **query)
    if as_json:
        print_json(page)
        return
    for line in feature_lines(record_of(page, page["examples"]), columns_here(), colour=has_colour()):
        echo(line)


@features.command()
@click.argument("text")
@click.option("--all-labels", is_flag=True, help="Also in labels that are not the ones shown.")
@limited
@with_source
@as_json
def search(text: str, all_labels: bool, limit: int, as_json: bool, **flags: Any) -> None:
    """Features whose label contains TEXT, whatever its case, those with the best scores first."""
    if not text.strip():
        raise click.BadParameter(
            "nothing is searched for; `neuroscope features top` lists all", param_hint="TEXT"
        )
    with feature_source(flags) as source:
        found = source.search(q=text, labels="all" if all_labels else None, limit=limit)
    _list(found, as_json)


@features.command()
@click.option("--by", type=click.Choice(list(SORTS)), default="score", show_default=True, help="What counts.")
@click.option("--ascending", is_flag=True, help="The lowest first.")
@limited
@with_source
@as_json
def top(by: str, ascending: bool, limit: int, as_json: bool, **flags: Any) -> None:
    """The features with the best-scored labels, the highest firing rate or the largest activation."""
    with feature_source(flags) as source:
        found = source.search(sort=SORTS[by], order="asc" if ascending else "desc", limit=limit)
    _list(found, as_json)


def _list(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        {
            "feature": row["feature"],
            "label": row["label"],
            "source": row["source"],
            "score": row["balanced_accuracy"],
            "firing_rate": row["firing_rate"],
            "max": row["max_activation"],
        }
        for row in found["features"]
    ]
    show(fitted(rows, "label", columns_here()), as_json=False, empty="No feature matches.")
    if (total := found["total"]) > len(rows):
        click.echo(f"{len(rows)} of {total:,}; --limit shows more.", err=True)
