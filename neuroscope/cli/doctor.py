"""`neuroscope doctor`: what is here, what is missing, and the command to go on with."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from typing import Any

import click

from neuroscope.cli.flags import as_json, overrides, with_pairing
from neuroscope.cli.output import print_json
from neuroscope.cli.terminal import echo, visible
from neuroscope.doctor import examine
from neuroscope.doctor.lines import COLUMNS, report_lines


@click.command()
@with_pairing
@click.option("--host", help="Address that the server is to have.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the chat API.")
@click.option("--features-port", type=click.IntRange(1, 65535), help="Port of the features stream.")
@as_json
def doctor(as_json: bool, **flags: Any) -> None:
    """Look at this machine: what is here, what is missing, what comes next. Status 1 when something is in the way.

    Python and packages, PyTorch and its devices, memory and disk against what the pairing takes, ports, the hub's
    token and licence, keys (never shown or sent), configuration, caches and results. Asks the hub at most; changes
    nothing. Where even this command does not start: python -m neuroscope.doctor
    """
    report = examine(overrides(flags))
    if as_json:
        print_json(
            {
                "blocked": report.blocked,
                "checks": [asdict(check) for check in report.checks],
                "next": report.next,
                "why": report.why or None,
            }
        )
    else:
        columns = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else COLUMNS
        for line in report_lines(report, columns):
            echo(visible(line))
    if report.blocked:
        raise click.exceptions.Exit(1)
