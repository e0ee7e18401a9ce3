"""How an answer is sampled, as plain numbers: what a request says, apart from torch, which acts on it.

The server checks requests while torch is still being imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen and when to stop. The border (server, CLI) checks ranges."""

    max_tokens: int | None = None
    """None: as many as the context has room for."""
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: bool = False
    top_logprobs: int = 0
