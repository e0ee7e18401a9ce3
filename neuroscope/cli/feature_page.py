"""One feature as `labels show --features` and `features show` print it: a record of what is known, and its lines.

Everything shown was written by texts or models: it reaches the terminal through `visible` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.output import table_lines
from neuroscope.cli.terminal import clip, clip_start, visible, width, wrap
from neuroscope.errors import ArtefactError, made_anew

if TYPE_CHECKING:
    from neuroscope.store import Results

Record = dict[str, Any]

INDENT = "  "
LABELLED = "labelled"
"""State of a feature that simply got its label: nothing to tell."""
NAMES = 13
"""Columns of the names on the left."""
NEIGHBOURS_SHOWN = 5
BARS = " ▁▂▃▄▅▆▇█"
EXAMPLE = ("activation", "stratum", "text_before", "token", "text_after", "doc_id", "position")
ABOUT_A_LABEL = ("source", "label", "confidence", "model", "method", "created_at")


def feature_record(
    results: Results, index: int, examples: int, states: Mapping[str, tuple[str, str | None]] | None = None
) -> Record:
    """Everything about a feature: the label shown, the other labels, firing, tokens and examples.

    `states` says by source how the feature fared with its labeler, and why.
    """
    found = results.feature(index)
    if found is None:
        raise ArtefactError(
            f"{results.path} holds nothing about feature {index}: it is not whole. {made_anew()}"
        )
    fared = [
        {"source": source, "state": state, "reason": reason}
        for source, (state, reason) in (states or {}).items()
    ]
    rows = results.examples(index, "top", examples)
    return record_of({**found, "states": fared, "histogram_edges": results.histogram_edges}, rows)


def record_of(found: Mapping[str, Any], examples: Sequence[Mapping[str, Any]]) -> Record:
    """The record of what the results, or the server's page, say about a feature."""
    labels = _with_scores(found["labels"], found["scores"])
    shown = next((label for label in labels if label["rank"] == 1), None)
    return {
        "feature": found["feature"],
        "label": found["label"],
        "source": found["source"],
        "confidence": found["confidence"],
        "balanced_accuracy": found["balanced_accuracy"],
        **{name: None if shown is None else shown[name] for name in ("model", "method", "created_at")},
        "scores": [] if shown is None else shown["scores"],
        "other_labels": [
            {name: label[name] for name in (*ABOUT_A_LABEL, "scores")}
            for label in labels
            if label is not shown
        ],
        "labelers": [{name: row[name] for name in ("source", "state", "reason")} for row in found["states"]],
        "n_tokens": found["n_tokens"],
        "n_fired": found["n_fired"],
        "strata": found["strata"],
        "promoted": _tokens(found["logits"], "promoted"),
        "suppressed": _tokens(found["logits"], "suppressed"),
        "neighbours": [
            {"feature": row["other"], **{name: row[name] for name in ("label", "cofiring", "n_both")}}
            for row in found["neighbours"]
        ],
        "histogram": _occupied(found["histogram"] or (), found["histogram_edges"]),
        "neuronpedia": found.get("neuronpedia"),
        "examples": [{name: row[name] for name in EXAMPLE} for row in examples],
    }


def _with_scores(labels: Sequence[Record], scores: Sequence[Record]) -> list[Record]:
    """Labels by rank; a source's scores are about the first of its labels."""
    left = list(scores)
    found = []
    for label in sorted(labels, key=lambda label: label["rank"]):
        own = [score for score in left if score["source"] == label["source"]]
        left = [score for score in left if score["source"] != label["source"]]
        without_source = [{name: score[name] for name in score if name != "source"} for score in own]
        found.append({**label, "scores": without_source})
    return found


def _occupied(counts: Sequence[int], edges: Sequence[float]) -> Record | None:
    """The part of a histogram in which there is something, and the activations at its ends; None for an empty one."""
    there = [place for place, count in enumerate(counts) if count]
    if not there:
        return None
    low, high = there[0], there[-1]  # bin n is below edge n and not below the one before
    return {
        "from": edges[low - 1] if low else 0.0,
        "to": edges[high] if high < len(edges) else None,
        "counts": list(counts[low : high + 1]),
    }


def _tokens(logits: Sequence[Record], kind: str) -> list[Record]:
    rows = sorted((row for row in logits if row["kind"] == kind), key=lambda row: row["rank"])
    return [{name: row[name] for name in ("token", "token_id", "weight")} for row in rows]


def feature_lines(record: Record, columns: int, *, colour: bool) -> Iterator[str]:
    """The record for people, in lines of at most `columns`."""
    title = f"feature {record['feature']}  {visible(record['label'])}"
    yield from (click.style(line, bold=True) if colour else line for line in wrap(title.split(" "), columns))
    yield from _named("source", _origin(record).split(" "), columns)
    yield from _scores(record["scores"], columns)
    others = [f"{visible(other['label'])} [{_other(other)}]" for other in record["other_labels"]]
    for place, other in enumerate(others):
        yield from _named("" if place else "other labels", other.split(" "), columns)
    fared = [row for row in record["labelers"] if row["state"] != LABELLED or row["reason"]]
    for place, row in enumerate(fared):
        why = f" ({visible(row['reason'])})" if row["reason"] else ""
        told = f"{visible(row['source'])}: {visible(row['state'])}{why}"
        yield from _named("" if place else "labelers", told.split(" "), columns)
    if record["n_fired"] is None:
        yield from _named("firing", ["not measured"], columns)
    elif not record["n_fired"]:
        yield from _named("firing", [f"never fired in {record['n_tokens']:,} tokens"], columns)
    else:
        yield from _firing(record["strata"], columns)
        yield from _histogram(record["histogram"], columns)
    for kind in ("promoted", "suppressed"):
        pieces = [visible(row["token"]).replace(" ", "␣") for row in record[kind]]
        yield from _named(kind, pieces, columns, blanks="  ")
    yield from _neighbours(record["neighbours"], columns)
    yield from _examples(record["examples"], columns, colour)
    if record["neuronpedia"]:
        # Whole, however wide: an address that is cut short leads nowhere.
        yield f"{INDENT}{'neuronpedia':{NAMES}}{visible(record['neuronpedia'])}"


def _named(name: str, pieces: Sequence[str], columns: int, blanks: str = " ") -> Iterator[str]:
    """Pieces beside their name, on as many lines as they need."""
    for place, line in enumerate(wrap(pieces, columns - len(INDENT) - NAMES, blanks)):
        yield f"{INDENT}{'' if place else name:{NAMES}}{line}"


def _origin(record: Mapping[str, Any]) -> str:
    if record["source"] is None:
        return "none: it is called by its number"
    made = [visible(record[name]) for name in ("model", "method") if record[name]]
    told = visible(record["source"]) + (f" ({', '.join(made)})" if made else "")
    return told + (f", confidence {visible(record['confidence'])}" if record["confidence"] else "")


def _other(label: Mapping[str, Any]) -> str:
    scores = "; ".join(_score(score) for score in label["scores"]) or "not scored"
    return f"{_origin(label)}; {scores}"


def _score(score: Mapping[str, Any]) -> str:
    name = visible(score["method"]).replace("_", " ")
    if score["balanced_accuracy"] is None:
        return f"{name} could not be judged"
    interval = "" if score["low"] is None else f" ({score['low']:.2f} to {score['high']:.2f})"
    return f"{name} {score['balanced_accuracy']:.2f}{interval}"


def _scores(scores: Sequence[Mapping[str, Any]], columns: int) -> Iterator[str]:
    for place, score in enumerate(scores):
        told = _score(score)
        if score["balanced_accuracy"] is not None:
            active, silent = score["tp"] + score["fn"], score["tn"] + score["fp"]
            told += f", {score['tp']} of {active} active and {score['tn']} of {silent} silent windows told"
        yield from _named("" if place else "detection", told.split(" "), columns)


def _firing(strata: Sequence[Mapping[str, Any]], columns: int) -> Iterator[str]:
    """A table of the strata, all texts first."""
    rows = [
        {
            "stratum": row["stratum"],
            "firing_rate": row["firing_rate"],
            "mean": row["mean_firing"],
            "max": row["max_activation"],
            "tokens": row["n_tokens"],
        }
        for row in sorted(strata, key=lambda row: (row["stratum"] != "all", row["stratum"]))
    ]
    for place, line in enumerate(table_lines(rows)):
        yield clip(f"{INDENT}{'' if place else 'firing':{NAMES}}{line}", columns)


def _histogram(histogram: Mapping[str, Any] | None, columns: int) -> Iterator[str]:
    """A bar for each range of activations, each range reaching to 1.4 times the one before."""
    if histogram is None:
        return
    counts = histogram["counts"]
    bars = "".join(BARS[math.ceil(count / max(counts) * (len(BARS) - 1))] for count in counts)
    above = [] if histogram["to"] is None else [f"{histogram['to']:.3g}"]
    told = f"tokens by activation, at most {max(counts):,} in a bar"
    yield from _named("histogram", [f"{histogram['from']:.3g}", bars, *above, *told.split(" ")], columns)


def _neighbours(neighbours: Sequence[Mapping[str, Any]], columns: int) -> Iterator[str]:
    """What fires on the same tokens, a line each."""
    for place, row in enumerate(neighbours[:NEIGHBOURS_SHOWN]):
        start = f"{INDENT}{'' if place else 'fires with':{NAMES}}{row['cofiring']:8.3g}  "
        label = clip(visible(row["label"]), columns - width(start) - 9)
        yield f"{start}{row['feature']:>7}  {label}"


def _examples(examples: Sequence[Mapping[str, Any]], columns: int, colour: bool) -> Iterator[str]:
    """A line each: activation, stratum, and the token in its text, as much of it as there is room for."""
    strata = max((width(visible(row["stratum"])) for row in examples), default=0)
    for place, row in enumerate(examples):
        start = f"{INDENT}{'' if place else 'examples':{NAMES}}{row['activation']:8.3g}  "
        start += f"{visible(row['stratum'])}{' ' * (strata - width(visible(row['stratum'])))}  "
        room = columns - width(start)
        token = clip(visible(row["token"]), max(8, room // 2))
        room -= width(token) + (0 if colour else 2)
        before, after = visible(row["text_before"]), visible(row["text_after"])
        before = clip_start(before, max(room // 2, room - width(after)))
        after = clip(after, room - width(before))
        yield start + before + _marked(token, colour) + after


def _marked(token: str, colour: bool) -> str:
    return click.style(token, fg="black", bg="yellow") if colour else f"«{token}»"
