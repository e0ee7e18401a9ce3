"""`neuroscope chat`: questions to the running server, each answer with the features of its tokens beside it.

One question as an argument or on stdin, else a conversation at the keyboard (`conversation.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import Number
from neuroscope.cli.running import client_of, view_of, with_server, with_view
from neuroscope.cli.stream_lines import Shown
from neuroscope.cli.terminal import columns_here, echo, has_colour, is_terminal, visible
from neuroscope.cli.token_lines import Layout, meter
from neuroscope.errors import NeuroscopeError

if TYPE_CHECKING:
    from neuroscope.client import Client, Listener

Messages = list[dict[str, str]]


@click.command()
@click.argument("prompt", required=False)
@click.option("--system", metavar="TEXT", help="What the model is told before the conversation.")
@click.option("--max-tokens", type=click.IntRange(1), help="Tokens of an answer at most.")
@click.option("--temperature", type=Number(0, 2), help="0 always takes the likeliest token.")
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@click.option("--prompt-features", is_flag=True, help="Show the prompt's tokens with their features too.")
@click.option(
    "--features-per-token",
    type=click.IntRange(1),
    help="Features shown of each token, on several lines if need be (default: what fits on one).",
)
@with_view
@click.option("--plain", is_flag=True, help="The answer's text and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a token.")
@click.option("--no-color", is_flag=True, help="No colour, also on a terminal.")
@with_server
def chat(prompt: str | None, system: str | None, **flags: Any) -> None:
    """Ask the running server; the answer comes token by token with what was active inside the model.

    PROMPT is the question; `-` reads it from stdin, as does a pipe. Without one a conversation begins, in which
    /help lists the commands. A feature is shown as its number, label, activation and z (how surprising that is);
    `·` is a token without text of its own.
    """
    from neuroscope.cli.conversation import converse

    if flags["plain"] and flags["as_json"]:
        raise click.UsageError("--plain and --json exclude each other.")
    messages: Messages = [] if system is None else [{"role": "system", "content": system}]
    question = _question(prompt)
    with client_of(flags) as client:
        teller = Teller(client, flags)
        if question is None:
            converse(teller, messages)
        else:
            teller.tell([*messages, {"role": "user", "content": question}])


def _question(prompt: str | None) -> str | None:
    """The argument, else what stdin holds; None when a person sits there."""
    if prompt is None and sys.stdin is not None and sys.stdin.isatty():
        return None
    text = _from_stdin() if prompt is None or prompt == "-" else prompt
    if not text.strip():
        raise click.UsageError('Nothing is asked: give a PROMPT, as in neuroscope chat "Where is Paris?"')
    return text


def _from_stdin() -> str:
    read = b"" if sys.stdin is None else sys.stdin.buffer.read()
    try:
        return read.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NeuroscopeError(f"The question on stdin is not UTF-8 (byte {error.start}).") from error


class Teller:
    """Asks and shows. The features are subscribed to before the first question, and once."""

    def __init__(self, client: Client, flags: Mapping[str, Any]) -> None:
        self._client = client
        self._flags = flags
        self._listener: Listener | None = None
        self._noted: set[str] = set()
        self.said = ""
        """What has come of the newest answer."""

    def tell(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Shows the answer to `messages` as it comes, and returns its text.

        Raises ServerError; on that and on Ctrl-C `said` has what had come.
        """
        self.said = ""
        names = ("max_tokens", "temperature", "seed")
        fields = {name: self._flags[name] for name in names}
        if self._flags["prompt_features"]:
            fields["neuroscope"] = {"prompt_features": True}
        if self._flags["plain"]:
            self._plain(messages, fields)
        elif self._flags["as_json"]:
            self._events(messages, fields)
        else:
            self._beside(messages, fields)
        return self.said

    def _plain(self, messages: Sequence[Mapping[str, str]], fields: Mapping[str, Any]) -> None:
        show: Callable[[str], str] = _harmless if is_terminal() else str
        finish_reason = None
        try:
            with closing(self._client.chat(messages, **fields)) as chunks:
                for chunk in chunks:
                    for choice in chunk.get("choices") or ():
                        text = choice.get("delta", {}).get("content") or ""
                        finish_reason = choice.get("finish_reason") or finish_reason
                        self.said += text
                        _write(show(text))
        finally:
            if self.said and not self.said.endswith("\n"):
                _write("\n")
        _note_cut(finish_reason)

    def _events(self, messages: Sequence[Mapping[str, str]], fields: Mapping[str, Any]) -> None:
        answer = self._listen().answer(messages, **fields)
        for event in answer:
            self.said = answer.text
            _write(json.dumps({"event": event.name, "id": event.id, "data": event.data}) + "\n")
        _note_cut(answer.finish_reason)

    def _beside(self, messages: Sequence[Mapping[str, str]], fields: Mapping[str, Any]) -> None:
        answer = self._listen().answer(messages, **fields)
        layout = Layout(
            columns_here(), self._flags["features_per_token"], has_colour() and not self._flags["no_color"]
        )
        shown = Shown(layout)
        try:
            for event in answer:
                self.said = answer.text
                shown.show(event)
        finally:
            self.said = answer.text
            if shown.tokens or answer.text:
                echo("")
                for line in answer.text.rstrip("\n").split("\n"):
                    echo(visible(line))
        count = len(shown.tokens) if shown.total is None else shown.total
        reason = answer.finish_reason or "ended"
        echo("")
        echo(f"{reason}: {count} tokens{meter(shown.tokens)}; {visible(answer.completion_id)}")
        for sentence in shown.degraded:
            if sentence not in self._noted:
                self._noted.add(sentence)
                click.echo(visible(sentence), err=True)
        _note_cut(answer.finish_reason)

    def _listen(self) -> Listener:
        from neuroscope.client import Listener

        if self._listener is None:
            view = view_of(self._flags)
            self._listener = Listener(
                self._client, **{**view, "top_k": view["top_k"] or self._flags["features_per_token"]}
            )
        return self._listener


def _write(text: str) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False)


def _harmless(text: str) -> str:
    """Text that keeps its lines and steers nothing."""
    return "".join(c if c == "\n" else "    " if c == "\t" else visible(c) for c in text)


def _note_cut(finish_reason: str | None) -> None:
    if finish_reason == "length":
        click.echo("The answer was cut at its limit of tokens; --max-tokens raises it.", err=True)
