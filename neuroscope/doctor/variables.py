"""The environment's variables: those that are set, and those that nothing reads because they are misspelt."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping

from neuroscope.doctor.check import Check
from neuroscope.doctor.words import secrets_of, without_secrets

PREFIX = "NEUROSCOPE_"
SHOWN = (
    "NEUROSCOPE_PAIRING",
    "NEUROSCOPE_CONFIG",
    "NEUROSCOPE_CACHE",
    "NEUROSCOPE_ALLOWED_HOSTS",
    "NEUROSCOPE_DEBUG",
)
"""Whose values may be shown."""
KNOWN = (
    *SHOWN,
    "NEUROSCOPE_API_KEY",
    "NEUROSCOPE_RUN_TOKEN",
    "NEUROSCOPE_STARTED_BY",
    "NEUROSCOPE_COMPLETE",
    "NEUROSCOPE_INTEGRATION_TESTS",
    "NEUROSCOPE_RIVALS",
)
OTHERS = ("HF_TOKEN", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "ANTHROPIC_API_KEY")
"""Variables of others that decide what happens here."""
ALIKE = 0.86


def variables(environment: Mapping[str, str] | None = None, more: Iterable[str] = ()) -> list[Check]:
    """What is set; then a line for each name that nothing reads. `more` are names that the settings choose."""
    named = os.environ if environment is None else environment
    known = {*KNOWN, *more}
    secrets = secrets_of(named)
    shown = [
        f"{name}={without_secrets(named[name], secrets)}" if name in SHOWN else f"{name} (value not shown)"
        for name in sorted(named)
        if name in known or name in OTHERS
    ]
    lines = [Check("variables", "ok", ", ".join(shown) or "none of the project's is set")]
    for name in sorted(named):
        meant = _meant(name, known)
        if meant is not None:
            wanted = (
                f"did you mean {meant}?" if meant else f"known: {', '.join((*SHOWN, 'NEUROSCOPE_API_KEY'))}"
            )
            lines.append(Check("variables", "note", f"{name} is set, and nothing reads it", wanted))
    return lines


def _meant(name: str, known: set[str]) -> str | None:
    """The name that was meant, empty where no guess fits; None for a name that is right or none of our business."""
    if name in known or name in OTHERS:
        return None
    written = name.upper()
    if written.startswith(PREFIX):
        rest = [known_name.removeprefix(PREFIX) for known_name in known if known_name.startswith(PREFIX)]
        near = difflib.get_close_matches(written.removeprefix(PREFIX), rest, n=1)
        return f"{PREFIX}{near[0]}" if near else ""
    return next(iter(difflib.get_close_matches(written, [*known, *OTHERS], n=1, cutoff=ALIKE)), None)
