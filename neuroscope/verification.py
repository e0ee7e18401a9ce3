"""`verification.json`: what `neuroscope verify` found about a model, an SAE and a tokenizer, and about which.

How it is found out is `verify`'s business; this is what is written, read and shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from neuroscope.errors import ArtefactError, made_anew
from neuroscope.manifest import MAX_BYTES, Fingerprint
from neuroscope.sources import read_text, replace_atomically

Verdict = Literal["ok", "off", "skipped"]
FILE = "verification.json"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    verdict: Verdict
    measured: float | None
    limit: str
    """The accepted range, in words."""
    sentence: str
    """What was compared; when off, what usually is the cause."""


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How well the SAE describes the residual stream over a set of tokens."""

    tokens: int
    l0: float
    """Mean number of active features."""
    fvu: float
    """sum |x - x_hat|^2 / sum |x - mean(x)|^2, in the space of the residual stream."""


@dataclass(frozen=True, slots=True)
class QuantizationEffect:
    """What fewer bits in the model's weights did, on the same text."""

    quantization: str
    unquantized: Fidelity
    overlap: float
    """Mean share of a token's ten strongest features that are among the ten without quantisation."""


@dataclass(frozen=True, slots=True)
class BackendParity:
    """Another backend against torch on the same weights, token by token."""

    backend: str
    numbers: str
    """What the weights are kept in; torch computes with the same ones, dequantised."""
    fidelity: Fidelity
    """Of the other backend's residuals."""
    cosine: float
    """Mean over the tokens, of both backends' residuals."""
    least_cosine: float
    overlap: float
    """Mean share of a token's ten strongest features by torch that are among the other's ten."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What `neuroscope verify` found."""

    checks: tuple[Check, ...]
    overall: Fidelity
    strata: Mapping[str, Fidelity]
    input_norms: Mapping[str, Fidelity]
    warnings: tuple[str, ...] = ()
    quantization: QuantizationEffect | None = None
    parity: BackendParity | None = None

    @property
    def off(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(check.name for check in self.checks if check.verdict == "off")

    @property
    def verdict(self) -> str:
        """`ok` or `off`."""
        return "off" if self.off else "ok"


def write_verification(path: Path, found: Verification, fingerprint: Fingerprint) -> None:
    """`verification.json`."""
    content = {"verdict": found.verdict, "fingerprint": fingerprint.to_dict(), **asdict(found)}
    with replace_atomically(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_verification(path: Path) -> tuple[Verification, Fingerprint]:
    """Raises ArtefactError when the file is not there or not of this version."""
    try:
        tree: dict[str, Any] = json.loads(read_text(path, at_most=MAX_BYTES))
        found = Verification(
            checks=tuple(Check(**check) for check in tree["checks"]),
            overall=Fidelity(**tree["overall"]),
            strata={name: Fidelity(**value) for name, value in tree["strata"].items()},
            input_norms={name: Fidelity(**value) for name, value in tree["input_norms"].items()},
            warnings=tuple(tree["warnings"]),
            quantization=_quantization(tree["quantization"]),
            parity=_parity(tree.get("parity")),
        )
        if not all(isinstance(word, str) for check in found.checks for word in (check.name, check.verdict)):
            raise TypeError("a check has no name or verdict")
        remedy = made_anew("neuroscope verify")
        return found, Fingerprint.from_dict(tree["fingerprint"], of=str(path), remedy=remedy)
    except FileNotFoundError as error:
        raise ArtefactError(f"{path} is not there. Make it with: neuroscope verify") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtefactError(f"{path} cannot be read ({error}). {made_anew('neuroscope verify')}") from error


def _parity(tree: Any) -> BackendParity | None:
    return None if tree is None else BackendParity(**{**tree, "fidelity": Fidelity(**tree["fidelity"])})


def _quantization(tree: Any) -> QuantizationEffect | None:
    if tree is None:
        return None
    return QuantizationEffect(tree["quantization"], Fidelity(**tree["unquantized"]), tree["overlap"])
