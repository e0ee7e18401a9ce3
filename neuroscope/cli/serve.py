"""`neuroscope serve`: checks what can be checked, then becomes gunicorn.

The server itself is `neuroscope.wsgi` with gunicorn.conf.py, as it is without this command.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import yaml

from neuroscope.cli.flags import Number, overrides, with_cores, with_pairing
from neuroscope.cli.pipeline import run_target
from neuroscope.errors import ConfigError, NeuroscopeError, shown

_OF_THE_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL, errno.ENETUNREACH}
"""What binding says of an address, whatever the port: another machine's, a family that is off, a missing zone."""


@click.command()
@with_pairing
@click.option("--top-k", type=click.IntRange(1), help="Features reported for a token at most.")
@click.option("--host", help="Address of both ports; one that is not loopback needs a key.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the chat API.")
@click.option("--features-port", type=click.IntRange(1, 65535), help="Port of the features stream.")
@click.option(
    "--feature-filter",
    type=click.Choice(["none", "frequency", "surprise", "combined", "frequency_surprise"]),
    help="Which features are hidden, and the order of the others.",
)
@click.option("--filter-threshold", type=Number(0, 1), help="Firing rate above which one is hidden.")
@click.option(
    "--calibration-path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A stats.json instead of the results.",
)
@click.option("--calibrate", is_flag=True, help="Measure firing rates first, when there are none.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="json: one object a line.")
@click.option("--check", is_flag=True, help="Only see whether both ports are free.")
@with_cores
def serve(calibrate: bool, check: bool, cores: int | None, **flags: Any) -> None:
    """Serve the chat API and the features stream.

    Both ports are on this machine only, unless --host says otherwise. Ctrl-C ends the server.
    """
    from neuroscope import settings

    given = overrides(flags)
    form = flags["log_format"]
    try:
        settled = settings.load(overrides=given)
        form = settled.serve.log_format
        check_ports(settled.serve.host, settled.serve.port, settled.serve.features_port)
    except NeuroscopeError as error:
        if form != "json":
            raise
        from neuroscope.server.logs import error_as_json

        click.echo(error_as_json(str(error)), err=True)
        click.get_current_context().exit(1)
    if check:
        return
    if calibrate:
        run_target("calibration", given, cores=cores)
    environment = {**os.environ, "NEUROSCOPE_PAIRING": settled.pairing.name}
    if given:
        environment["NEUROSCOPE_CONFIG"] = str(_write_config(settled, given))
    os.chdir(settled.root)
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "-c",
        str(settled.root / "gunicorn.conf.py"),
        "neuroscope.wsgi",
    ]
    os.execve(sys.executable, command, environment)


def check_ports(host: str, port: int, features_port: int) -> None:
    """Raises NeuroscopeError that names the address or the port which cannot be bound, why, and what to change."""
    if port == features_port:
        raise ConfigError(
            f"--port and --features-port are both {port}; the chat API and the features need one each."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET  # as gunicorn chooses
    try:
        socket.getaddrinfo(host, port, family)
    except (socket.gaierror, UnicodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "a part of it is too long"
        raise _wrong_host(host, reason) from error
    from neuroscope.server.master import try_bind

    for number, flag in ((port, "--port"), (features_port, "--features-port")):
        try:
            try_bind(host, number)
        except OSError as error:
            if error.errno in _OF_THE_ADDRESS:
                raise _wrong_host(host, os.strerror(error.errno)) from error
            raise NeuroscopeError(f"Port {number} on {host} {_why(error, flag)}") from error


def _wrong_host(host: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{shown(host)} is not an address of this machine: {reason}. Give one with --host, as 127.0.0.1."
    )


def _why(error: OSError, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"is in use. Choose another with {flag} N."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"is reserved for the system's own services. Choose one from 1024 up with {flag} N."
    return f"cannot be bound ({os.strerror(error.errno or 0)}). Choose another with {flag} N."


def _write_config(settled: Any, given: dict[str, Any]) -> Path:
    """The configuration with the flags in it, where the server and its restarted workers find it."""
    from neuroscope.settings import config_path
    from neuroscope.settings.schema import merge, nest, read_schema, read_yaml
    from neuroscope.sources import replace_atomically

    schema = read_schema(settled.root / "workflow/schemas/config.schema.yaml")
    tree = merge(read_yaml(config_path(settled.root, None)), nest(given, schema))
    path = settled.results / f".serve-{settled.serve.port}.yaml"
    text = yaml.safe_dump(tree, allow_unicode=True)
    try:
        with replace_atomically(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return Path(path)
    except OSError:  # results may be somebody else's, or on a medium that is only read
        descriptor, name = tempfile.mkstemp(prefix="neuroscope-serve-", suffix=".yaml")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return Path(name)
