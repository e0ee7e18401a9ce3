"""All checks of one subject."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from neuroscope.verification import Fidelity, Verification
from neuroscope.verify import checks
from neuroscope.verify.fidelity import by_input_norm, by_stratum, fidelity
from neuroscope.verify.published import Published, published
from neuroscope.verify.subject import Subject

FAR_OFF = 1.5
"""A stratum whose FVU is this many times that of all text is told apart."""


def verify_subject(subject: Subject, examples: Published | None = None) -> Verification:
    """Runs every check; none of them ends the others. `examples` are Neuronpedia's, where they were imported."""
    residuals = subject.residuals
    x = torch.cat(list(residuals.values()))
    overall = fidelity(subject.sae, x)
    norms = by_input_norm(subject.sae, x)
    strata = by_stratum(subject.sae, residuals)
    found = (
        checks.encode(subject),
        checks.weights(subject),
        checks.hook(subject),
        checks.cache(subject),
        checks.bos(subject),
        checks.l0(subject, overall),
        checks.fvu(overall),
        checks.input_norm(subject, norms),
        *([] if examples is None else [published(subject, examples)]),
    )
    return Verification(found, overall, strata, norms, tuple(_warnings(overall, strata)))


def _warnings(overall: Fidelity, strata: Mapping[str, Fidelity]) -> list[str]:
    return [
        f"The SAE describes {name} text badly: FVU {found.fvu:.2f}, all text {overall.fvu:.2f}. It was hardly "
        "trained on such text; read its features there with care."
        for name, found in strata.items()
        if found.fvu > FAR_OFF * overall.fvu
    ]
