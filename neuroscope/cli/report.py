"""`neuroscope report`: what the results say, in six plots and on one page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import as_json, overrides, with_cores, with_pairing
from neuroscope.cli.output import print_json, show_record
from neuroscope.cli.pipeline import run_target

if TYPE_CHECKING:
    from neuroscope.settings import Settings


@click.command()
@with_pairing
@with_cores
@as_json
def report(cores: int | None, as_json: bool, **flags: Any) -> None:
    """Draw the results that there are: a page, six plots and all their numbers as JSON.

    Firing rates, active features, activations, scores of labels, coverage, and whether rates depend on the kind of
    text. Nothing is measured anew: a changed setting of the sweep waits for the next `labels generate`.
    """
    from neuroscope import settings
    from neuroscope.cli.results import open_own_results

    chosen = overrides(flags)
    settled = settings.load(overrides=chosen)
    with open_own_results(settled) as results:
        has_labels = bool(results.label_counts())
    if has_labels:
        run_target("report", chosen, cores=cores, anew=True, by_time=True)
    else:  # the rule would have the labels made first
        _of_calibration(settled)
    _tell(settled, as_json)


def _of_calibration(settled: Settings) -> None:
    from neuroscope.report.record import FOLDER, PAGE, RECORD
    from neuroscope.report.stage import make_report

    make_report(
        settled,
        database=settled.results / "results.duckdb",
        output=settled.results / PAGE,
        record=settled.results / FOLDER / RECORD,
    )


def _tell(settled: Settings, as_json: bool) -> None:
    from neuroscope.report.record import FOLDER, PAGE, RECORD
    from neuroscope.sources import read_text

    folder = settled.results / FOLDER
    page = settled.results / PAGE
    found: dict[str, Any] = json.loads(read_text(folder / RECORD))
    if as_json:
        plots = sorted(str(path) for path in folder.glob("*.svg"))
        print_json({"page": str(page), "plots": plots, **found})
        return
    overall, firing = found["strata"][-1], found["firing"]
    scores = found["scores"] if isinstance(found["scores"], list) else []
    show_record(
        {
            "tokens": overall["tokens"],
            "mean L0": overall["l0"],
            "FVU": overall["fvu"],
            **{f"{name} features": firing.get(name) for name in ("dead", "rare")},
            "always on": firing.get("always_on"),
            **{f"labels of {source['name']}": source["labelled"] for source in found["sources"]},
            **{f"score of {score['source']}, {score['method']}": score["mean"] for score in scores},
            "page": str(page),
        },
        as_json=False,
    )
    for warning in found["warnings"]:
        click.echo(warning, err=True)
