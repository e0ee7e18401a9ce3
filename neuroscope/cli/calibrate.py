"""`neuroscope calibrate`: how often and how strongly each feature fires."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import as_json, overrides, with_cores, with_corpus, with_pairing
from neuroscope.cli.output import show
from neuroscope.cli.pipeline import run_target

if TYPE_CHECKING:
    from neuroscope.imported import FiringPrior
    from neuroscope.settings import Settings


@click.group()
def calibrate() -> None:
    """Firing statistics of every feature."""


@calibrate.command("run")
@with_pairing
@with_corpus
@with_cores
def run_calibration(samples: int | None, cores: int | None, **flags: Any) -> None:
    """Measure firing rates on a small part of the corpus."""
    run_target("calibration", overrides(flags, calibration__samples=samples), cores=cores)


@calibrate.command("show")
@click.option("--stats", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A stats.json.")
@click.option("--pairing", help="Model and SAE by name: a file in config/pairings.")
@click.option("--stratum", default="all", show_default=True, help="Kind of text, when the results are read.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Features to show.")
@click.option("--strata", is_flag=True, help="Only the means of each kind of text.")
@as_json
def show_calibration(
    stats: Path | None, pairing: str | None, stratum: str, top: int, strata: bool, as_json: bool
) -> None:
    """How the SAE describes each kind of text, and the features that fire most often.

    With --json one of the two: features, or with --strata the kinds of text. Where nothing was measured here, the
    firing rates that were imported from Neuronpedia are shown, and called so.
    """
    import numpy as np

    from neuroscope import settings, store
    from neuroscope.settings.commands import commands_name
    from neuroscope.stats import CalibrationStats

    if stats is None and not strata and (prior := _prior(settings.load(pairing))) is not None:
        _show_prior(prior, top, as_json)
        return
    if stats is None and (strata or not as_json):
        _show_strata(settings.load(pairing), as_json)
        if strata:
            return
        click.echo()
    labels: dict[int, str] = {}
    if stats is not None:
        measured = CalibrationStats.from_json(stats)
    else:
        settled = settings.load(pairing)
        path = settled.results / "results.duckdb"
        with commands_name(settled.pairing.name), store.open_results(path) as results:
            measured = results.stats(stratum)
            labels = {row.feature: row.label for row in results.labels()}
    rows = [
        {
            "feature": int(feature),
            "firing_rate": float(measured.firing_rate[feature]),
            "mean_firing": float(measured.mean_firing[feature]),
            "variance_firing": float(measured.variance_firing[feature]),
            "max_activation": float(measured.max_activation[feature]),
            "label": labels.get(int(feature), f"feature_{feature}"),
        }
        for feature in np.argsort(-measured.firing_rate, kind="stable")[:top]
    ]
    show(rows, as_json=as_json)


def _prior(settled: Settings) -> FiringPrior | None:
    """Neuronpedia's firing rates, where there are no results to show."""
    from neuroscope.imported import read_prior

    width = settled.pairing.sae.width
    if width is None or (settled.results / "results.duckdb").is_file():
        return None
    return read_prior(settled.results, settled.pairing.neuronpedia, width)


def _show_prior(prior: FiringPrior, top: int, as_json: bool) -> None:
    import numpy as np

    rates = np.nan_to_num(prior.firing_rate, nan=-1.0)
    rows = [
        {
            "feature": int(feature),
            "firing_rate": float(prior.firing_rate[feature]),
            "max_activation": float(prior.max_activation[feature]),
            "source": prior.source,
        }
        for feature in np.argsort(-rates, kind="stable")[: min(top, prior.n_known)]
    ]
    show(rows, as_json=as_json)
    click.echo(
        f"These firing rates are Neuronpedia's ({prior.about}); nothing was measured here. "
        "Measure it with: neuroscope calibrate run",
        err=True,
    )


def _show_strata(settled: Settings, as_json: bool) -> None:
    """Tokens and mean L0 of each stratum in the sweep; FVU where `neuroscope verify` has measured it."""
    from neuroscope import store
    from neuroscope.known import fitting_verification
    from neuroscope.settings.commands import commands_name, with_pairing

    name, path = settled.pairing.name, settled.results / "results.duckdb"
    with commands_name(name), store.open_results(path) as results:
        swept = (results.meta()["sweep"] or {}).get("strata", {})
        verification = fitting_verification(settled, results.fingerprint())
    fidelity = {} if verification is None else {**verification.strata, "all": verification.overall}
    rows = [
        {
            "stratum": name,
            "documents": found["documents"],
            "tokens": found["tokens"],
            "mean_l0": found["mean_l0"],
            "fvu": fidelity[name].fvu if name in fidelity else None,
        }
        for name, found in swept.items()
    ]
    show(rows, as_json=as_json, empty="The results have no report of their sweep.")
    if verification is None:
        hint = "FVU is not measured yet. Measure it with: neuroscope verify"
        click.echo(with_pairing(hint, name), err=True)
    else:
        for warning in verification.warnings:
            click.echo(warning, err=True)
