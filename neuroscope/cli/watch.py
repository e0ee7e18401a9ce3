"""`neuroscope watch`: the features stream as it comes, of everybody's answers.

Cut off, it comes back to where it was; what it missed meanwhile is said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.running import client_of, view_of, with_server, with_view
from neuroscope.cli.stream_lines import Shown, note_of_the_stream
from neuroscope.cli.terminal import columns_here, echo, has_colour, visible
from neuroscope.cli.token_lines import Layout, meter

if TYPE_CHECKING:
    from neuroscope.client import Event

ENDS = ("generation_complete", "generation_error")
MOST_OPEN = 64


@click.command()
@click.option("--completion-id", metavar="ID", help="Only this answer, from its beginning; ends with it.")
@click.option("--since", metavar="ID", help="Go on after this event; 0 begins with the oldest one kept.")
@click.option("--once", is_flag=True, help="End after the first answer.")
@click.option(
    "--features-per-token",
    type=click.IntRange(1),
    help="Features shown of each token, on several lines if need be (default: what fits on one).",
)
@with_view
@click.option("--json", "as_json", is_flag=True, help="One JSON object an event.")
@click.option("--no-color", is_flag=True, help="No colour, also on a terminal.")
@with_server
def watch(completion_id: str | None, since: str | None, once: bool, **flags: Any) -> None:
    """Follow what the running server generates, whoever asked for it, until Ctrl-C.

    Each answer is headed by its completion's id, which --completion-id takes. When the server goes away the command
    waits for it and goes on where it was.
    """
    ends = once or completion_id is not None
    view = view_of(flags)
    if not flags["as_json"]:
        view["top_k"] = view["top_k"] or flags["features_per_token"]
    show = _show_json if flags["as_json"] else Watched(flags, completion_id or "tokens").show
    with (
        client_of(flags) as client,
        closing(client.follow(since, completion_id=completion_id, **view)) as events,
    ):
        for event in events:
            show(event)
            if ends and event.name in ENDS:
                return


def _show_json(event: Event) -> None:
    click.echo(json.dumps({"event": event.name, "id": event.id, "data": event.data}))


class Watched:
    """Shows events for people; answers that take turns are told apart by their headings."""

    def __init__(self, flags: Mapping[str, Any], awaited: str = "tokens") -> None:
        self._awaited = awaited
        colour = has_colour() and not flags["no_color"]
        self._layout = Layout(columns_here(), flags["features_per_token"], colour)
        self._shown: dict[str, Shown] = {}
        self._current = ""
        self._was_open = False

    def show(self, event: Event) -> None:
        """Writes what one event says."""
        completion_id = event.data.get("completion_id")
        if event.name == "open":
            waiting = f"-- connected, waiting for {visible(self._awaited)}"
            click.echo("-- connected again" if self._was_open else waiting, err=True)
            self._was_open = True
        elif completion_id is None:
            note_of_the_stream(event)
        else:
            self._show_answer(completion_id, event)

    def _show_answer(self, completion_id: str, event: Event) -> None:
        if completion_id not in self._shown:
            self._shown[completion_id] = Shown(self._layout)
            if len(self._shown) > MOST_OPEN:  # the end of the oldest was in a gap
                del self._shown[next(iter(self._shown))]
        if completion_id != self._current:
            echo(f"== {visible(completion_id)}")
            self._current = completion_id
        shown = self._shown[completion_id]
        shown.show(event)
        if event.name not in ENDS:
            return
        if event.name == "generation_error":
            echo(f"failed: {visible(event.data['message'])}")
        else:
            data = event.data
            echo(f"{visible(data['finish_reason'])}: {data['total_tokens']} tokens{meter(shown.tokens)}")
        echo("")
        del self._shown[completion_id]
        self._current = ""
