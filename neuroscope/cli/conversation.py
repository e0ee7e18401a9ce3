"""A conversation at the keyboard: lines in, answers told by whoever is asked, commands that begin with a slash.

Ctrl-C ends an answer, not the program; Ctrl-D leaves. Nothing that is typed is kept when it is over.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Protocol

import click

from neuroscope.cli.terminal import visible
from neuroscope.errors import ConfigError, NeuroscopeError

Messages = list[dict[str, str]]

PROMPT = "you> "
HELP = """\
/clear       forget the conversation so far
/save FILE   write it down as JSON, as the chat API takes it
/quit        leave, as Ctrl-D does
/help        this list
A line that begins with a space is said as it is. Ctrl-C ends an answer."""


class Teller(Protocol):
    """Who answers."""

    said: str
    """What has come of the newest answer: what was ended in its middle stays part of the conversation."""

    def tell(self, messages: Messages) -> str:
        """Shows the answer to `messages`, and returns its text."""


def converse(teller: Teller, opening: Messages) -> None:
    """Reads questions and has them told until the end of input or /quit."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - input() edits lines and recalls earlier ones once it is there
    messages = list(opening)
    click.echo("Ctrl-D or /quit leaves, /help lists what else there is.", err=True)
    while True:
        try:
            line = _ask()
        except KeyboardInterrupt:
            click.echo("\nCtrl-D or /quit leaves.", err=True)
            continue
        except EOFError:
            click.echo("", err=True)
            return
        if line.startswith("/"):
            if _command(line, messages, opening):
                return
        elif line.strip():
            _turn(teller, messages, line)


def _ask() -> str:
    if sys.stdout is not None and sys.stdout.isatty():
        return input(PROMPT)
    click.echo(PROMPT, err=True, nl=False)  # stdout is data
    return input()


def _turn(teller: Teller, messages: Messages, line: str) -> None:
    """One question and its answer. What fails is told and forgotten, so that it can be asked again."""
    messages.append({"role": "user", "content": line})
    try:
        answer = teller.tell(messages)
    except KeyboardInterrupt:
        click.echo("\nThe answer was ended.", err=True)
        answer = teller.said
    except NeuroscopeError as error:
        messages.pop()
        click.echo(f"neuroscope: {error}", err=True)
        return
    if answer:
        messages.append({"role": "assistant", "content": answer})
    else:
        messages.pop()


def _command(line: str, messages: Messages, opening: Messages) -> bool:
    """Does what a line with a slash says. Returns whether it was to leave."""
    word, _, rest = line.strip().partition(" ")
    if word in ("/quit", "/exit"):
        return True
    if word == "/clear":
        messages[:] = opening
        click.echo("Forgotten.", err=True)
    elif word == "/help":
        click.echo(HELP, err=True)
    elif word == "/save":
        try:
            click.echo(_save(rest.strip(), messages), err=True)
        except NeuroscopeError as error:
            click.echo(f"neuroscope: {error}", err=True)
    else:
        click.echo(f"There is no {visible(word)}; /help lists what there is.", err=True)
    return False


def _save(name: str, messages: Messages) -> str:
    from neuroscope.sources import replace_atomically

    if not name:
        raise ConfigError("Say where to: /save FILE")
    path = Path(name).expanduser()
    text = json.dumps({"messages": messages}, ensure_ascii=False, indent=2) + "\n"
    try:
        with replace_atomically(path) as part:
            part.write_bytes(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    return f"{len(messages)} messages are in {path}."
