"""The page of the report: one HTML file that holds its plots and its style, and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined

from neuroscope.report.drift import Drift
from neuroscope.report.numbers import ALWAYS_ON, Missing, Scores
from neuroscope.report.record import Report
from neuroscope.report.svg import Plot, plain
from neuroscope.stats import MIN_FIRINGS

EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses to listen on that are none to go to."""
LONG = 20
"""Characters of a hash or revision that are shown."""

READING = {
    "firing-rates": "A good SAE has few dead features and few that are always on. Features in the grey part fired too "
    "rarely for a mean.",
    "active-features": "The mean is the sum of all firing rates. A mean far from the published one points to another "
    "layer, norm or kind of text.",
    "activations": "Frequent features are often weak. One that is frequent and strong is seldom about a single thing.",
    "label-scores": "Half the share of active windows that a label recognises plus half the share of silent ones that "
    "it rejects, on texts it was not made from.",
    "coverage": "Where the curve still rises, more text would show more features.",
    "drift": "The server compares an activation with the statistics of one kind of text. Far from the line, another "
    "kind gives another answer.",
}
"""Plot -> how to read it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table of figures."""

    name: str
    value: str
    meaning: str


def page(report: Report, plots: Sequence[Plot], host: str, port: int) -> str:
    """The whole file. Links lead to the server's features port at `host` and `port`."""
    files = resources.files("neuroscope.report")
    style = files.joinpath("page.css").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["plain"] = plain
    environment.filters["count"] = _count
    environment.filters["figure"] = _figure
    environment.filters["interval"] = _interval
    template = environment.from_string(files.joinpath("page.html.jinja").read_text(encoding="utf-8"))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return template.render(
        report=report,
        made_of=list(_made_of(report)),
        rows=list(_rows(report)),
        plots=[(plot, plot.inside, READING[plot.name]) for plot in plots],
        scores=[] if isinstance(report.scores, Missing) else report.scores,
        pairs=report.drift.pairs if isinstance(report.drift, Drift) else (),
        server=server_url(host, port),
        style=style,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )


def server_url(host: str, port: int) -> str:
    """Where a browser on this machine finds a server that listens there."""
    name = EVERY_ADDRESS.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def _rows(report: Report) -> Iterator[Row]:
    """The main figures."""
    overall, firing = report.overall, report.firing
    documents = "" if overall.documents is None else f", {overall.documents:,} documents"
    yield Row("Text measured", f"{overall.tokens:,} tokens{documents}", "what every rate is a share of")
    published = "" if report.published_l0 is None else f" (published {report.published_l0:g})"
    yield Row("Mean L0", f"{overall.l0:.1f}{published}", "features active on a token")
    yield Row(
        "FVU", _figure(overall.fvu, "not measured"), "share of the variance that the SAE does not explain"
    )
    if isinstance(firing, Missing):
        yield Row("Firing rates", "none", firing.reason)
    else:
        of = firing.features
        yield Row("Dead features", _share(firing.dead, of), "never fired on these texts")
        yield Row(
            "Rare features", _share(firing.rare, of), f"fired fewer than {MIN_FIRINGS} times: no surprise"
        )
        yield Row(
            "Always on", _share(firing.always_on, of), f"fire on more than {ALWAYS_ON:.0%} of the tokens"
        )
    shown = sum(source.shown for source in report.sources)
    yield Row(
        "Features with a label", _share(shown, report.fingerprint.d_sae), "the others are shown by number"
    )
    for of_source in report.sources:
        counted = f"{of_source.labelled:,}, {of_source.shown:,} of them shown"
        yield Row(f"Labels of {of_source.name}", counted, "features it has a label for")
    for score in () if isinstance(report.scores, Missing) else report.scores:
        meaning = "mean balanced accuracy of its labels, with a 95% interval; 0.5 is chance"
        yield Row(f"Score of {score.source}, {score.method}", _interval(score), meaning)


def _made_of(report: Report) -> Iterator[tuple[str, str]]:
    """What the results were made of, without what is about this machine alone."""
    made = report.fingerprint
    yield "Model", made.model.partition("#")[0]
    yield "Model's revision", _cut(made.model_revision or "not pinned")
    yield "SAE", made.sae.partition("#")[0]
    yield "SAE's SHA-256", _cut(made.sae_sha256)
    yield "Read at", f"layer {made.layer}, input norm {made.input_norm}"
    yield "Width", f"{made.d_sae:,} features of {made.d_in:,} dimensions"
    yield "Tokenizer's SHA-256", _cut(made.tokenizer_sha256)
    yield "Corpus' SHA-256", _cut(made.corpus_sha256 or "unknown")
    yield "Fingerprint of all", _cut(hashlib.sha256(made.to_json().encode()).hexdigest())
    yield "Neuroscope", made.package_version


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}..."


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _figure(value: float | None, without: str = "-") -> str:
    return without if value is None else f"{value:.3g}"


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else f"{part:,}"


def _interval(score: Scores) -> str:
    if score.mean is None:
        return f"none of {score.failed:,} labels could be scored"
    ends = "" if score.low is None else f" ({score.low:.3f} to {score.high:.3f})"
    return f"{score.mean:.3f}{ends}, {score.scored:,} labels"
