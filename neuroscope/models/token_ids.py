"""A prompt that is token ids already, as programs that tokenize by themselves send it (lm-eval does).

Apart from `chat`, so that the server can read a request while torch is still being imported.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Read as they are: no BOS is put before them, and a control token is one."""

    ids: tuple[int, ...]
