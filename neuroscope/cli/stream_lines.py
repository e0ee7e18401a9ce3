"""Events of the features stream as lines, as they come: of one answer for `chat`, of all of them for `watch`.

How a token looks is said in `token_lines.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.terminal import echo, visible
from neuroscope.cli.token_lines import Layout, heading, token_lines, unseen_lines

if TYPE_CHECKING:
    from neuroscope.client import Event


class Shown:
    """Writes the events of one answer."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._part = ""
        self.tokens: list[Mapping[str, Any]] = []
        """L0 and FVU of the answer's tokens, null where they were not seen."""
        self.degraded: list[str] = []
        self.total: int | None = None
        """Tokens of the answer as the server counts them, without the end of the turn; None until it says so."""

    def show(self, event: Event) -> None:
        """Writes what one event says."""
        data = event.data
        if event.name == "prompt_activation":
            self._begin("prompt")
            for token in data["tokens"]:
                self._write(token_lines(token, self._layout))
        elif event.name == "feature_activation":
            self._begin("answer")
            self.tokens.append({"l0": data.get("l0"), "fvu": data.get("fvu")})
            self._write(token_lines(data, self._layout))
        elif event.name == "unseen":
            self._begin("answer")
            self.tokens.append({"l0": data.get("l0"), "fvu": data.get("fvu")})
            self._write(unseen_lines(data, self._layout))
        elif event.name == "generation_complete":
            self.degraded += data["degraded"]
            self.total = data["total_tokens"]
        else:
            note_of_the_stream(event)

    def _begin(self, part: str) -> None:
        if part == self._part:
            return
        if not self._part:
            echo(heading(self._layout))
        if part == "prompt" or self._part == "prompt":
            echo(f"-- {part}")
        self._part = part

    def _write(self, lines: Iterable[str]) -> None:
        for line in lines:
            echo(line)


def note_of_the_stream(event: Event) -> None:
    """Tells on stderr what the stream lost, and that it ends or comes back."""
    if event.name == "gap":
        missed = event.data.get("missed")
        count = "Events" if missed is None else f"{missed:,} events"
        click.echo(f"-- {count} are missing here: {visible(str(event.data.get('reason')))}", err=True)
    elif event.name == "lost":
        wait_s = event.data["retry_in_s"]
        then = "no more features come" if wait_s is None else f"trying again in {wait_s:g} s"
        click.echo(f"-- the stream is cut off: {visible(event.data['reason'])} ({then})", err=True)
    elif event.name == "shutdown":
        click.echo("-- the server is shutting down", err=True)
