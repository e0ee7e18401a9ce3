"""`neuroscope diff`: two recordings or texts side by side: features that appear, vanish and change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import Number, as_json, overrides, with_pairing
from neuroscope.cli.output import fitted, print_json, table_lines
from neuroscope.cli.recorded import is_file, read_named
from neuroscope.cli.running import client_of, with_server
from neuroscope.cli.terminal import clip, columns_here, echo, has_colour, pad, visible, width, wrap
from neuroscope.errors import ArtefactError, SourceError

if TYPE_CHECKING:
    from neuroscope.recording import Recording
    from neuroscope.settings import Settings

PAIRS_SHOWN = 8
MARKS = {"=": None, "-": "red", "+": "green"}
COLOURS = {"appears": "green", "stronger": "green", "vanishes": "red", "weaker": "red"}

Row = dict[str, Any]


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--text", is_flag=True, help="A and B are texts, read as they are by the running server.")
@click.option("--prompt", is_flag=True, help="A and B are a user's messages, read with the model's template.")
@click.option(
    "--filter",
    "feature_filter",
    type=click.Choice(["none", "frequency", "surprise", "combined", "frequency_surprise"]),
    default="frequency_surprise",
    show_default=True,
    help="Which features are left out, and the order of the others.",
)
@click.option("--threshold", type=Number(0, 1), help="Firing rate above which one is left out.")
@click.option(
    "--top-k", type=click.IntRange(1, 1000), default=20, show_default=True, help="Features to show."
)
@click.option("--min-activation", type=Number(0, 1e9), default=0.0, help="Less counts as none.")
@with_server
@with_pairing
@as_json
def diff(first: str, second: str, text: bool, prompt: bool, as_json: bool, **flags: Any) -> None:
    """What differs between the features of A and B.

    Each is a recording's file or a session's id; with --text or --prompt, words for the running server to read.
    Words with a blank in them that name no file are read as with --prompt. Two recordings need no server.
    """
    from neuroscope import settings

    if text and prompt:
        raise click.UsageError("--text and --prompt exclude each other.")
    places = {name: flags.pop(name) for name in ("host", "port", "features_port")}
    settled = settings.load(overrides=overrides(flags))
    kind = "text" if text else "messages" if prompt else None
    sides = [_side(name, kind, settled) for name in (first, second)]
    threshold = settled.ranking.threshold if flags["threshold"] is None else flags["threshold"]
    wanted = {
        "filter": flags["feature_filter"],
        "threshold": threshold,
        "top_k": flags["top_k"],
        "min_activation": flags["min_activation"],
    }
    found = _compared(sides, wanted, places)
    if as_json:
        print_json(found)
        return
    for line in diff_lines(found, columns_here(), colour=has_colour()):
        echo(line)


def _side(name: str, kind: str | None, settled: Settings) -> Recording | Row:
    """A recording that is here, or what the server is asked with."""
    if kind is None and " " in name.strip() and not is_file(name):
        kind = "messages"
    if kind == "messages":
        return {"messages": [{"role": "user", "content": name}]}
    if kind == "text":
        return {"text": name}
    try:
        return read_named(name, settled)
    except ArtefactError as error:
        if is_file(name):
            raise
        raise SourceError(
            f"{error} To compare texts, give --text, or --prompt for questions to the model."
        ) from error


def _compared(sides: Sequence[Recording | Row], wanted: Row, places: Mapping[str, Any]) -> Row:
    from neuroscope.diff import compare, side_of
    from neuroscope.ranking import Ranking
    from neuroscope.recording import Recording

    a, b = sides
    if isinstance(a, Recording) and isinstance(b, Recording):
        return compare(side_of(a), side_of(b), Ranking(**wanted))
    asked = [{"recording": side.to_dict()} if isinstance(side, Recording) else side for side in sides]
    with client_of(places) as client:
        found: Row = client.post("/v1/diff", {"a": asked[0], "b": asked[1], **wanted})
        return found


def diff_lines(found: Row, columns: int, *, colour: bool) -> Iterator[str]:
    """The differences for people: what is compared, the features, the texts, and where features differ."""
    for name in ("a", "b"):
        content = sum(token["content"] for token in found[name]["tokens"])
        yield clip(f"{name.upper()}  {visible(found[name]['title'])}  ({_tokens(content)})", columns)
    yield ""
    for line in _summary(found):
        yield from wrap(line.split(" "), columns)
    if found["features"]:
        yield ""
        yield from _table(found, columns, colour)
    yield ""
    yield from _texts(found, columns, colour)
    if found["pairs"]:
        yield ""
        yield from _pairs(found, columns)


def _tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


def _summary(found: Row) -> Iterator[str]:
    tokens = found["a"]["tokens"]
    shared = sum(t["content"] for start, _, length in found["runs"] for t in tokens[start : start + length])
    yield f"{_tokens(shared)} shared" + (
        "."
        if found["is_whole"]
        else ", at the beginning and the end: the texts are too long to be aligned whole."
    )
    told = [f"{count} {state}" for state, count in found["counts"].items()]
    hidden = found["filtered_count"]
    more = f"; {hidden} more too frequent to be shown" if hidden else ""
    yield f"Features: {', '.join(told)}{more}."
    if len(found["features"]) < sum(count for state, count in found["counts"].items() if state != "alike"):
        yield f"The {len(found['features'])} that differ most (--top-k N for more):"


def _table(found: Row, columns: int, colour: bool) -> Iterator[str]:
    rows = []
    for row in found["features"]:
        label = found["about"][str(row["index"])]["label"]
        rows.append(
            {
                "feature": row["index"],
                "label": label,
                "": row["state"],
                "A max": row["a"]["max"] or None,
                "A tokens": row["a"]["tokens"],
                "B max": row["b"]["max"] or None,
                "B tokens": row["b"]["tokens"],
                "surprise": row["change_surprise"],
            }
        )
    head, *lines = table_lines(fitted(rows, "label", columns))
    yield head
    for row, line in zip(rows, lines, strict=True):
        yield click.style(line, fg=COLOURS[row[""]]) if colour else line


def _texts(found: Row, columns: int, colour: bool) -> Iterator[str]:
    """The shared parts once, what only one has behind its sign."""
    yield "= shared, - only A, + only B"
    a, b = found["a"]["tokens"], found["b"]["tokens"]
    i = j = 0
    for start_a, start_b, length in [*found["runs"], [len(a), len(b), 0]]:
        for sign, tokens in (
            ("-", a[i:start_a]),
            ("+", b[j:start_b]),
            ("=", a[start_a : start_a + length]),
        ):
            for line in _folded("".join(visible(token["token"]) for token in tokens), columns - 2):
                shown = f"{sign} {line}"
                yield click.style(shown, fg=MARKS[sign]) if colour and MARKS[sign] else shown
        i, j = start_a + length, start_b + length


def _folded(text: str, columns: int) -> Iterator[str]:
    """Lines of at most `columns`, broken wherever they are full."""
    line, used = "", 0
    for character in text:
        room = width(character)
        if used + room > columns:
            yield line
            line, used = "", 0
        line, used = line + character, used + room
    if line:
        yield line


def _pairs(found: Row, columns: int) -> Iterator[str]:
    """The shared tokens whose features differ most."""
    by_size = sorted(
        found["pairs"], key=lambda pair: -max(abs(one["b"] - one["a"]) for one in pair["features"])
    )[:PAIRS_SHOWN]
    most = "" if len(by_size) == len(found["pairs"]) else f"; here the {len(by_size)} that differ most"
    yield f"Shared tokens whose features differ: {len(found['pairs'])}{most}."
    for pair in sorted(by_size, key=lambda pair: pair["a"]):
        token = pad(clip(visible(found["a"]["tokens"][pair["a"]]["token"]), 14), 14)
        parts = [
            f"{one['index']} {clip(visible(found['about'][str(one['index'])]['label']), 24)} "
            f"{one['a']:.3g} > {one['b']:.3g}"
            for one in pair["features"][:3]
        ]
        yield clip(f"{token}  {'; '.join(parts)}", columns)
