"""What quantisation did to the features, and what another backend does: the same text through both models."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from neuroscope.verification import BackendParity, Check, QuantizationEffect
from neuroscope.verify.fidelity import fidelity, top_overlap
from neuroscope.verify.subject import ReadsWindows, Subject, residuals_of

LEAST_COSINE = 0.99
"""Least mean cosine of two backends' residuals on the same weights: 8-bit activations leave some 0.999."""


def quantization_effect(
    subject: Subject, unquantized: ReadsWindows, quantization: str, *, by: ReadsWindows | None = None
) -> QuantizationEffect:
    """Of the subject's model, or another that runs it (`by`), against the same one unquantised, token by token."""
    reference, x = _both(subject, unquantized, by or subject.backend)
    return QuantizationEffect(
        quantization, fidelity(subject.sae, reference), top_overlap(subject.sae, reference, x)
    )


def backend_parity(subject: Subject, other: ReadsWindows, same: ReadsWindows, numbers: str) -> BackendParity:
    """Of llama.cpp, `other`, against torch with the weights of the same file, `same`."""
    reference, x = _both(subject, same, other)
    cosine = torch.nn.functional.cosine_similarity(x, reference, dim=-1)
    return BackendParity(
        "llamacpp",
        numbers,
        fidelity(subject.sae, x),
        float(cosine.mean()),
        float(cosine.min()),
        top_overlap(subject.sae, reference, x),
    )


def parity_check(found: BackendParity) -> Check:
    """Whether the other backend runs the same model."""
    what = f"Mean cosine of llama.cpp's residuals ({found.numbers}) and torch's on the same weights, dequantised."
    cause = "Usually a layer counted otherwise, a GGUF file of another model, or a rotary or norm setting lost in it."
    good = found.cosine >= LEAST_COSINE
    return Check(
        "backend",
        "ok" if good else "off",
        found.cosine,
        f">= {LEAST_COSINE:g}",
        what if good else f"{what} {cause}",
    )


def _both(subject: Subject, reference: ReadsWindows, other: ReadsWindows) -> tuple[Tensor, Tensor]:
    """Residuals [n, d_in] by both, row for row; outliers go by the reference's norms, since both need the same rows."""
    whole = replace(subject, outlier_norm=torch.inf)
    expected, found = (
        torch.cat([residuals_of(whole, backend, tokens) for tokens in subject.texts.values()])
        for backend in (reference, other)
    )
    norm = torch.linalg.vector_norm(expected, dim=-1)
    sound = norm <= subject.outlier_norm * norm.median()
    return expected[sound], found[sound]
