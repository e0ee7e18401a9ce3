"""Runs a Snakemake target with settings from flags, through a temporary --configfile.

`--config` on Snakemake's own command line hands nested values over as text; a file keeps their types.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml


def run_target(target: str, overrides: Mapping[str, Any], *, cores: int | None) -> None:
    """Brings `target` up to date. Its progress goes to stderr; a failure ends the command with status 1.

    Raises ConfigError before anything runs when the flags do not make valid settings.
    """
    from neuroscope import settings

    settled = settings.load(overrides=overrides)
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
        command += ["--configfile", str(config), "--", target]
        environment = {**os.environ, "NEUROSCOPE_PAIRING": settled.pairing.name}  # the flag comes first
        process = subprocess.Popen(command, stdout=sys.stderr.fileno(), cwd=settled.root, env=environment)
        code = _wait(process)
    if code:
        raise click.exceptions.Exit(1)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Waits for Snakemake, which gets Ctrl-C from the terminal itself and ends its jobs first."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in dotted.items():
        *parents, last = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[last] = str(value) if isinstance(value, Path) else value
    return tree
