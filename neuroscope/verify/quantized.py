"""What quantisation did to the features: the same text through the model with and without it."""

from __future__ import annotations

from dataclasses import replace

import torch

from neuroscope.models.torch_backend import TorchBackend
from neuroscope.verification import QuantizationEffect
from neuroscope.verify.fidelity import fidelity, top_overlap
from neuroscope.verify.subject import Subject


def quantization_effect(
    quantized: Subject, unquantized: TorchBackend, quantization: str
) -> QuantizationEffect:
    """Of the subject's model against the same one unquantised, token by token.

    Outliers stay in: both sides need the same rows.
    """
    whole = replace(quantized, outlier_norm=torch.inf)
    x = torch.cat(list(whole.residuals.values()))
    reference = torch.cat(list(replace(whole, backend=unquantized).residuals.values()))
    kept = torch.linalg.vector_norm(reference, dim=-1)
    sound = kept <= quantized.outlier_norm * kept.median()
    return QuantizationEffect(
        quantization,
        fidelity(quantized.sae, reference[sound]),
        top_overlap(quantized.sae, reference[sound], x[sound]),
    )
