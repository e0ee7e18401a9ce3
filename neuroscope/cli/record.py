"""`neuroscope record`: asks the running server and keeps the answer with all its features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import Number, as_json
from neuroscope.cli.output import show_record
from neuroscope.cli.running import client_of, with_server
from neuroscope.cli.terminal import visible
from neuroscope.errors import NeuroscopeError, ServerError

if TYPE_CHECKING:
    from neuroscope.client import Client

OUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("prompt", required=False)
@click.option("--completion", metavar="ID", help="Keep an answer that the server has given lately instead.")
@click.option("--system", metavar="TEXT", help="A system message before the prompt.")
@click.option("--max-tokens", type=click.IntRange(1), help="Tokens of the answer at most.")
@click.option("--temperature", type=Number(0, 2), help="0: always the likeliest token.")
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@click.option("--title", help="What to call the recording.")
@click.option("--out", type=OUT, help="Also write the recording to this file.")
@click.option(
    "--prompt-features/--no-prompt-features", default=True, help="Keep the prompt's features too (default)."
)
@with_server
@as_json
def record(
    prompt: str | None,
    completion: str | None,
    system: str | None,
    prompt_features: bool,
    title: str | None,
    out: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Ask the running server and keep the answer, every token with all its features.

    The server keeps it beside its results; `neuroscope session list` lists what is there. The answer is shown on
    stderr while it is written, where it was kept on stdout.
    """
    if (prompt is None) == (completion is None):
        raise click.UsageError("Give a PROMPT to ask, or --completion ID of an answer that was given.")
    with client_of(flags) as client:
        messages = None
        if prompt is not None:
            first = [] if system is None else [{"role": "system", "content": system}]
            messages = [*first, {"role": "user", "content": prompt}]
            sampling = {name: flags[name] for name in ("max_tokens", "temperature", "seed")}
            completion = _ask(client, messages, prompt_features=prompt_features, **sampling)
        body = {"completion_id": completion, "title": title, "messages": messages}
        kept = client.post("/v1/sessions", {name: value for name, value in body.items() if value is not None})
        if out is not None:
            _write(client, kept["id"], out)
        page = client.page(kept["url"])
    for note in kept["notes"]:
        click.echo(f"neuroscope: {visible(note)}", err=True)
    told = {
        "id": kept["id"],
        "page": page,
        "file": None if out is None else str(out),
        "completion_id": completion,
    }
    show_record(told if as_json else {n: v for n, v in told.items() if v is not None}, as_json=as_json)


def _ask(client: Client, messages: list[dict[str, str]], *, prompt_features: bool, **sampling: Any) -> str:
    """The id of the answer, once it is whole."""
    completion = ""
    asked = {"prompt_features": prompt_features}
    for chunk in client.chat(messages, neuroscope=asked, **sampling):
        completion = chunk["id"]
        for choice in chunk["choices"]:
            text = choice["delta"].get("content") or ""
            click.echo("\n".join(map(visible, text.split("\n"))), err=True, nl=False)
    click.echo("", err=True)
    if not completion:
        raise ServerError("The server ended its answer without a token.")
    return completion


def _write(client: Client, name: str, out: Path) -> None:
    from neuroscope.recording import check_recording, write_recording

    try:
        write_recording(out, check_recording(client.get(f"/v1/sessions/{name}"), of=f"session {name}"))
    except (OSError, NeuroscopeError):
        click.echo(f"The answer is kept all the same, as session {name}.", err=True)
        raise
