"""The running server that a command talks to: where it is, and how this subscriber sees its stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from neuroscope.cli.flags import Number, overrides

if TYPE_CHECKING:
    from neuroscope.client import Client

Command = Callable[..., Any]

LONGEST_SILENCE_S = 90.0
VIEW = ("feature_filter", "threshold", "top_k", "min_activation", "features", "align")
"""Flags of `with_view`, as Python names."""


def with_server(command: Command) -> Command:
    """Adds the flags that say where the server is."""
    port = click.IntRange(1, 65535)
    for option in reversed(
        (
            click.option("--host", help="Where the server is, when not as config.yaml says."),
            click.option("--port", type=port, help="Port of its chat API."),
            click.option("--features-port", type=port, help="Port of its features."),
        )
    ):
        command = option(command)
    return command


def with_view(command: Command) -> Command:
    """Adds the flags that change what this reader of the stream sees, and nobody else's."""
    for option in reversed(
        (
            click.option(
                "--filter",
                "feature_filter",
                type=click.Choice(["none", "frequency", "surprise", "combined", "frequency_surprise"]),
                help="Which features are hidden, and the order of the others.",
            ),
            click.option("--threshold", type=Number(0, 1), help="Firing rate above which one is hidden."),
            click.option("--top-k", type=click.IntRange(1, 1000), help="Features asked for, for each token."),
            click.option("--min-activation", type=Number(0, 1e9), help="Hide activations below this."),
            click.option("--features", metavar="I,J,...", help="Only these features."),
            click.option(
                "--align",
                type=click.Choice(["own", "producer"]),
                help="producer: what the position before had active, which chose the token.",
            ),
        )
    ):
        command = option(command)
    return command


def client_of(flags: Mapping[str, Any]) -> Client:
    """A client of the server that the flags name, and config.yaml where they are silent.

    The key is that of the environment.
    """
    from neuroscope import settings
    from neuroscope.client import Client

    places = {name: flags.get(name) for name in ("host", "port", "features_port")}
    serve = settings.load(overrides=overrides(places)).serve
    return Client(
        serve.host,
        serve.port,
        serve.features_port,
        os.environ.get(serve.api_key_env),
        key_variable=serve.api_key_env,
        tell=lambda sentence: click.echo(sentence, err=True),
        silence_s=max(LONGEST_SILENCE_S, 3 * serve.heartbeat_s),
    )


def view_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags of `with_view` ask of the stream, as its parameters; None where it is the server's default."""
    return {"filter" if name == "feature_filter" else name: flags[name] for name in VIEW}
