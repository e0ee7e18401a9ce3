"""One feature as JSON: its names, how it fires, what it promotes, its neighbours, and texts that excite it.

The same fields whether or not there are results; what is not known is null or an empty list. Rows are those of
results.duckdb, whose comments say what each column means.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from neuroscope.server import wire
from neuroscope.server.problems import wrong
from neuroscope.server.queries import read_whole

if TYPE_CHECKING:
    from neuroscope.server.described import Described
    from neuroscope.store import Results

KINDS = ("top", "sample", "held_out")
"""Of examples: the largest activations, random ones, and random ones that no label was made from."""
LISTS = ("strata", "histogram_edges", "labels", "scores", "states", "logits", "neighbours", "examples")
EXAMPLES_BY = ("examples", "n")
EXAMPLES_SHOWN = 20
MOST_EXAMPLES = 200

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExamplesWanted:
    """At most `n` of each of `kinds`."""

    kinds: tuple[str, ...]
    n: int


def read_examples_wanted(query: Mapping[str, str]) -> ExamplesWanted:
    """`?examples=top,sample&n=5`; `all` and `none` are kinds too. Raises Problem 400 that names the parameter."""
    text = query.get("examples", "top")
    kinds = {"all": KINDS, "none": ()}.get(text, tuple(name.strip() for name in text.split(",")))
    if not set(kinds) <= set(KINDS) or len(set(kinds)) != len(kinds):
        accepted = f"{', '.join(KINDS)}, with commas between, or all, or none"
        raise wrong("examples", text, accepted)
    return ExamplesWanted(kinds, read_whole(query, "n", EXAMPLES_SHOWN, 1, MOST_EXAMPLES))


def feature_page(loaded: Described, index: int, wanted: ExamplesWanted) -> Row:
    """Everything known about a feature. Raises ArtefactError for unreadable results."""
    measured = {} if loaded.results is None else _measured(loaded.results, loaded, index, wanted)
    page = {
        **_unmeasured(loaded, index),
        **measured,
        **_shown_label(loaded, index),
        "sae_id": loaded.sae_id,
        "layer": loaded.layer,
        "neuronpedia": neuronpedia_url(loaded, index),
        "degraded": list(loaded.degraded),
    }
    found: Row = _finite(page)
    return found


def neuronpedia_url(loaded: Described, index: int) -> str | None:
    if loaded.neuronpedia is None:
        return None
    model, sae = loaded.neuronpedia
    return f"https://www.neuronpedia.org/{model}/{sae}/{index}"


def _measured(results: Results, loaded: Described, index: int, wanted: ExamplesWanted) -> Row:
    """What the results database says."""
    found = results.feature(index) or {}
    for row in found.get("neighbours", ()):
        row["label"] = loaded.labels[row["other"]]  # as the stream shows it
    examples = [row for kind in wanted.kinds for row in results.examples(index, kind, wanted.n)]
    return {
        **found,
        "histogram_edges": results.histogram_edges,
        "examples": _with_tokens(results, examples),
    }


def _with_tokens(results: Results, examples: list[Row]) -> list[Row]:
    """Examples with the texts of their windows' tokens, and `center`, the place of the feature's own among them."""
    windows = [row["window"] for row in examples]
    texts = results.token_texts({token for window in windows for token in window if token is not None})
    for row, window in zip(examples, windows, strict=True):
        row["tokens"] = [texts.get(token, "") for token in window if token is not None]
        row["center"] = sum(token is not None for token in window[: len(window) // 2])
    return examples


def _shown_label(loaded: Described, index: int) -> Row:
    """The label that the stream shows, whichever file it came from."""
    named = () if loaded.known is None else loaded.known.named
    place = bisect_left(named, index, key=attrgetter("feature"))
    if place == len(named) or named[place].feature != index:
        return {"label": loaded.labels[index]}
    row = named[place]
    return {"label": row.label, "source": row.source, "confidence": row.confidence}


def _unmeasured(loaded: Described, index: int) -> Row:
    """What is known without a database: the figures the filter goes by, and that there are no lists."""
    stats = loaded.stats

    def figure(name: str) -> float | None:
        values = getattr(stats, name, None)
        return None if values is None else float(values[index])

    figures = ("firing_rate", "mean_firing", "variance_firing", "max_activation")
    in_use = {name: figure(name) for name in figures}
    n_fired = getattr(stats, "n_fired", None)
    return {
        "feature": index,
        "source": None,
        "confidence": None,
        "balanced_accuracy": None,
        "low": None,
        "high": None,
        "score_method": None,
        **in_use,
        "n_fired": None if n_fired is None else int(n_fired[index]),
        "n_tokens": None if stats is None else stats.n_tokens,
        "log_density": _log10(in_use["firing_rate"]),
        "stats_in_use": None if stats is None else {"source": stats.source, **in_use},
        "histogram": None,
        **{name: [] for name in LISTS},
    }


def _log10(rate: float | None) -> float | None:
    return None if rate is None or not rate > 0 else math.log10(rate)


def _finite(value: Any) -> Any:
    """NaN and infinity as null, however deep: a database may hold them, JSON may not."""
    if isinstance(value, float):
        return wire.finite(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
