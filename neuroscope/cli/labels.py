"""`neuroscope labels`: names of features, and how far they can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from neuroscope.cli.flags import as_json, overrides, with_cores, with_corpus, with_pairing
from neuroscope.cli.output import show, show_record
from neuroscope.cli.pipeline import run_target
from neuroscope.errors import LabelError

COLLECTED = 20
"""Examples that config.yaml collects for each feature: a labeler that is to see more needs more collected."""

LABELS_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def labels() -> None:
    """Names of features and their scores."""


@labels.command()
@with_pairing
@with_corpus
@click.option("--examples-per-feature", type=click.IntRange(1), help="Strongest examples the labeler sees.")
@click.option("--labeler", metavar="NAME", help="tokens (no key needed) or a Claude model id.")
@click.option("--concurrency", type=click.IntRange(1), help="Calls to Claude in flight at once.")
@click.option("--score/--no-score", default=None, help="Also run detection scoring.")
@with_cores
def generate(samples: int | None, cores: int | None, **flags: Any) -> None:
    """Collect max-activating examples, name every feature and write results.duckdb, statistics included."""
    more = flags["examples_per_feature"]
    collected = more if more is not None and more > COLLECTED else None
    given = overrides(flags, examples__samples=samples, examples__per_feature=collected)
    run_target("labels", given, cores=cores)


@labels.command()
@with_pairing
@click.option("--labels", "path", type=LABELS_FILE, help="A labels.json whose labels are looked at instead.")
@with_cores
@as_json
def score(path: Path | None, cores: int | None, as_json: bool, **flags: Any) -> None:
    """Score labels by detection on held-out text: all in figures, or each of a labels.json.

    A label is judged by the rule it was made with; words without a rule need a reader, which this version lacks.
    """
    from neuroscope import settings

    given = overrides(flags, labels__score=True)
    settled = settings.load(overrides=given)
    run_target("scores", given, cores=cores)
    rows = _from_results(settled.pairing.name)
    if path is None:
        show_record(_summary(rows, settled.labels.min_score), as_json=as_json)
        return
    known = {(row["feature"], row["label"]): row for row in rows}
    asked = [known.get((row["feature"], row["label"]), row) for row in _from_file(path)]
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


@labels.command("show")
@click.option("--features", metavar="I,J,...", help="Only these features.")
@click.option("--search", metavar="TEXT", help="Only labels that contain TEXT.")
@click.option("--labels", "path", type=LABELS_FILE, help="A labels.json instead of the results.")
@click.option("--pairing", help="Model and SAE by name: a file in config/pairings.")
@as_json
def show_labels(
    features: str | None, search: str | None, path: Path | None, pairing: str | None, as_json: bool
) -> None:
    """Labels of some features, or of all that have one."""
    wanted = _indices(features)
    rows = _from_file(path) if path is not None else _from_results(pairing, wanted)
    by_feature = {row["feature"]: row for row in rows}
    if wanted is not None:
        rows = [by_feature.get(feature, _unlabelled(feature)) for feature in wanted]
    if search:
        rows = [row for row in rows if search.lower() in row["label"].lower()]
    show(rows, as_json=as_json, empty="No feature matches.")


def _from_results(pairing: str | None, wanted: list[int] | None = None) -> list[dict[str, Any]]:
    """The labels of the results. Raises LabelError when a feature of `wanted` is none of the SAE's."""
    from neuroscope import settings, store

    with store.open_results(settings.load(pairing).results / "results.duckdb") as results:
        width = results.fingerprint().d_sae
        if beyond := [feature for feature in wanted or [] if feature >= width]:
            raise LabelError(f"There is no feature {beyond[0]}: this SAE has features 0 to {width - 1}.")
        return [row._asdict() for row in results.labels()]


def _from_file(path: Path) -> list[dict[str, Any]]:
    from neuroscope.labels import read_labels

    return [
        _unlabelled(label.feature)
        | {"label": label.label, "source": label.source, "confidence": label.confidence}
        for label in read_labels(path).labels
    ]


def _unlabelled(feature: int) -> dict[str, Any]:
    return {
        "feature": feature,
        "label": f"feature_{feature}",
        "source": None,
        "confidence": None,
        "balanced_accuracy": None,
    }


def _indices(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not a list of numbers such as 4521,3022", param_hint="--features"
        ) from error
    if any(index < 0 for index in found):
        raise click.BadParameter("features are counted from 0", param_hint="--features")
    return found
