"""Commands in messages, made to work as they are copied: they name the pairing that the message is about.

Modules that know no settings write `snakemake --cores 4 labels`; the pairing is added where it is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from neuroscope.errors import NeuroscopeError

_COMMAND = re.compile(
    r"(?P<named>NEUROSCOPE_PAIRING=\S+ )?(?<![\w/.-])"
    r"(?P<command>(?:snakemake --|neuroscope (?:calibrate|corpus|labels|report|serve|session|verify)\b)[^`\n]*)"
)


def with_pairing(message: str, pairing: str) -> str:
    """`message` with NEUROSCOPE_PAIRING before every command of the pipeline in it that names no pairing yet."""

    def named(found: re.Match[str]) -> str:
        if found["named"] or "--pairing" in found["command"]:
            return found[0]
        return f"NEUROSCOPE_PAIRING={pairing} {found['command']}"

    return _COMMAND.sub(named, message)


@contextmanager
def commands_name(pairing: str) -> Iterator[None]:
    """Expected failures of the block leave it with commands that name `pairing`."""
    try:
        yield
    except NeuroscopeError as error:
        error.args = (with_pairing(str(error), pairing),)
        raise
