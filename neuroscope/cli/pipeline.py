"""Runs a Snakemake target with settings from flags, through a temporary --configfile.

`--config` on Snakemake's own command line hands nested values over as text; a file keeps their types.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import yaml

from neuroscope.errors import SourceError

WAKE_SECONDS = 0.5
PATIENCE_SECONDS = 5.0
"""A run that was asked to stop has this long; its jobs leave within two seconds."""


def run_target(
    target: str,
    overrides: Mapping[str, Any],
    *,
    cores: int | None,
    anew: bool = False,
    by_time: bool = False,
) -> None:
    """Brings `target` up to date. Its progress goes to stderr; a failure ends the command with status 1.

    `anew` runs it even when nothing changed; with `by_time` only what is older than its inputs runs, and what a changed
    setting asks for waits.
    Raises ConfigError before anything runs when the flags do not make valid settings.
    """
    from neuroscope import settings
    from neuroscope.jobs import STARTED_BY

    settled = settings.load(overrides=overrides)
    _check_cache()
    with tempfile.TemporaryDirectory(prefix="neuroscope-") as folder:
        config = Path(folder) / "flags.yaml"
        config.write_text(yaml.safe_dump(_nested({**overrides, "pairing": settled.pairing.name})))
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(settled.root / "Snakefile")]
        command += [
            "--directory",
            str(settled.root),
            "--cores",
            str(cores or "all"),
            "--quiet",
            "host",
            "rules",
        ]
        command += ["--configfile", str(config)]
        command += ["--forcerun", target] if anew else []
        command += ["--rerun-triggers", "mtime"] if by_time else []
        command += ["--", target]
        environment = {
            **os.environ,
            "NEUROSCOPE_PAIRING": settled.pairing.name,  # the flag comes first
            STARTED_BY: str(os.getpid()),
        }
        process = subprocess.Popen(command, stdout=sys.stderr.fileno(), cwd=settled.root, env=environment)
        code = _wait(process)
    if code:
        raise click.exceptions.Exit(1)


def _check_cache() -> None:
    """Raises SourceError when Snakemake's own cache cannot be made, of which it would say only a traceback."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(
            f"The cache folder {base} cannot be made: {error.strerror}. Set XDG_CACHE_HOME to a folder of yours."
        ) from error
    if not os.access(base, os.W_OK):
        raise SourceError(
            f"The cache folder {base} cannot be written. Set XDG_CACHE_HOME to a folder of yours."
        )


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Waits for Snakemake. Ctrl-C, SIGTERM and SIGHUP end it, and it ends its jobs first.

    Snakemake ends by itself when this process is killed (jobs.end_with_starter).
    """
    with _stop_signals_interrupt():
        try:
            while True:  # a signal that another thread takes does not end a wait without an end
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(WAKE_SECONDS)
        except KeyboardInterrupt:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks once, whether or not the terminal has asked too; insists after a while, or when asked again."""
    process.terminate()
    try:
        process.wait(PATIENCE_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


@contextmanager
def _stop_signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt in the block, as Ctrl-C does."""

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    # Where one is ignored (nohup) it stays so.
    heard = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in dotted.items():
        *parents, last = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[last] = str(value) if isinstance(value, Path) else value
    return tree
