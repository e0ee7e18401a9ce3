"""`neuroscope session`: the recordings beside a pairing's results; no server is needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import as_json, overrides, with_pairing
from neuroscope.cli.output import fitted, human_bytes, print_json, show, show_record
from neuroscope.cli.recorded import read_named, sessions_of
from neuroscope.cli.terminal import can_ask, columns_here, confirm, echo, visible, wrap

if TYPE_CHECKING:
    from neuroscope.recording import Recording
    from neuroscope.sessions import Sessions

FEATURES_SHOWN = 10


@click.group()
def session() -> None:
    """Recorded answers: list, show, export and delete them."""


@session.command("list")
@with_pairing
@as_json
def list_sessions(as_json: bool, **flags: Any) -> None:
    """The recordings of a pairing, newest first. Also completes sessions.duckdb where it is behind."""
    from neuroscope import settings

    kept = sessions_of(settings.load(overrides=overrides(flags)))
    for note in kept.sync():
        click.echo(f"neuroscope: {visible(note)}", err=True)
    _, rows = kept.page()
    if as_json:
        show(rows, as_json=True)
        return
    table = [
        {
            "id": row["id"],
            "created_at": row["created_at"],
            "tokens": row["total_tokens"],
            "size": human_bytes(row["bytes"]),
            "title": row["title"] if row["error"] is None else row["error"],
        }
        for row in rows
    ]
    show(
        fitted(table, "title", columns_here()),
        as_json=False,
        empty=f"There are no recordings in {kept.folder}: neuroscope record PROMPT",
    )


@session.command("show")
@click.argument("name", metavar="ID|FILE")
@with_pairing
@as_json
def show_session(name: str, as_json: bool, **flags: Any) -> None:
    """What a recording says: the texts, and the features that stood out. --json is the recording itself."""
    from neuroscope import settings

    recording = read_named(name, settings.load(overrides=overrides(flags)))
    if as_json:
        print_json(recording.to_dict())
        return
    named = ("id", "title", "created_at", "model", "sae_id", "completion_id", "finish_reason")
    counts = {"prompt tokens": len(recording.prompt), "answer tokens": recording.total_tokens}
    show_record({name: getattr(recording, name) for name in named} | counts, as_json=False)
    for place, rows in (("prompt", recording.prompt), ("answer", recording.tokens)):
        if text := "".join(row["token"] for row in rows):
            echo(f"\n{place}:")
            for paragraph in text.split("\n"):
                for line in wrap(visible(paragraph).split(" "), columns_here()):
                    echo(line)
    if found := standing_out(recording, FEATURES_SHOWN):
        echo("")
        show(fitted(found, "label", columns_here()), as_json=False)


def standing_out(recording: Recording, limit: int) -> list[dict[str, Any]]:
    """The answer's features with the largest summed surprise, else activation, where none is frequent."""
    from neuroscope.diff import side_of, strongest
    from neuroscope.ranking import Ranking

    chosen = recording.ranking
    ranking = Ranking("frequency_surprise", chosen["threshold"], limit)
    rows = [row for row in side_of(recording).rows if row["place"] == "answer" and row["content"]]
    return [
        {
            "feature": index,
            "label": recording.features[str(index)]["label"],
            "tokens": found.tokens,
            "max": found.max,
            "surprise": found.surprise,
        }
        for index, found in strongest(rows, recording.features, ranking)
    ]


@session.command("html")
@click.argument("name", metavar="ID|FILE")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="The file to write (default: its id in this folder); - for stdout.",
)
@with_pairing
def html_session(name: str, out: Path | None, **flags: Any) -> None:
    """Write a recording as one HTML file, which works without server and network by a double click."""
    from neuroscope import settings
    from neuroscope.server.session_html import session_html
    from neuroscope.sources import replace_atomically

    recording = read_named(name, settings.load(overrides=overrides(flags)))
    text = session_html(recording)
    if out is not None and str(out) == "-":
        sys.stdout.buffer.write(text.encode())
        return
    path = out or Path(f"{recording.id}.html")
    with replace_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    echo(str(path))


@session.command("delete")
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_pairing
def delete_sessions(names: Sequence[str], yes: bool, **flags: Any) -> None:
    """Delete recordings for good: their files and their rows in sessions.duckdb."""
    from neuroscope import settings

    kept = sessions_of(settings.load(overrides=overrides(flags)))
    titles = {name: _title(kept, name) for name in names}
    if not yes:
        if not can_ask():
            raise click.UsageError("There is nobody to ask whether to delete; say --yes.")
        for name, title in titles.items():
            click.echo(f"{name}  {visible(title)}", err=True)
        if not confirm(f"Delete {len(titles)} recording(s) for good?"):
            click.echo("Nothing was deleted.", err=True)
            raise click.exceptions.Exit(1)
    for name in titles:
        for note in kept.delete(name):
            click.echo(f"neuroscope: {visible(note)}", err=True)
        echo(f"deleted {name}")


def _title(kept: Sessions, name: str) -> str:
    """What is asked about before it is deleted. Raises UnknownSessionError."""
    from neuroscope.errors import ArtefactError
    from neuroscope.sessions import UnknownSessionError

    try:
        return kept.read(name).title
    except UnknownSessionError:
        raise
    except ArtefactError:
        return "(its file cannot be read)"
