"""How the doctor writes numbers, and what it never writes: keys, tokens and passwords."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

HIDDEN = "(hidden)"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
_TOKEN = re.compile(r"\b(?:hf_|sk-)[A-Za-z0-9_-]{6,}")
SHORTEST = 6
"""A value of fewer characters is a word that stands in messages by chance, such as `none`."""


def human_bytes(size: int) -> str:
    """302 MB: in powers of a thousand, as disks and the hub count."""
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if value >= 10 or units[0] == "B" else f"{value:.1f} {units[0]}"


def secrets_of(environment: Mapping[str, str] | None = None, more: Iterable[str | None] = ()) -> list[str]:
    """What may not be shown: values of variables that are named as secrets are, the longest first."""
    named = os.environ if environment is None else environment
    found = {value.strip() for name, value in named.items() if _SECRET_NAME.search(name)}
    found |= {value.strip() for value in more if value}
    return sorted((value for value in found if len(value) >= SHORTEST), key=len, reverse=True)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """`text` with each secret, what looks like a token, and the passwords of addresses taken out."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return _IN_ADDRESS.sub(f"{HIDDEN}@", _TOKEN.sub(HIDDEN, text))
