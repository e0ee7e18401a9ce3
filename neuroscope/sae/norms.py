"""Input norms: what is done to a residual before W_enc, and how x_hat gets back to the raw residual's space."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Undo = Callable[[Tensor], Tensor]
InputNorm = Callable[[Tensor], tuple[Tensor, Undo]]
"""x [..., d_in] -> (what W_enc reads, the map from x_hat in that space to x_hat in x's own)."""


def none(x: Tensor) -> tuple[Tensor, Undo]:
    """x itself: most releases, Gemma Scope among them."""
    return x, lambda x_hat: x_hat


def rms(x: Tensor) -> tuple[Tensor, Undo]:
    """x / sqrt(mean(x^2)) per token. Not for Gemma Scope: its released weights take the raw residual stream."""
    scale = (x.square().mean(-1, keepdim=True) + 1e-12).rsqrt()
    return x * scale, lambda x_hat: x_hat / scale


def layer_norm(x: Tensor) -> tuple[Tensor, Undo]:
    """(x - mean) / (std + 1e-5) per token, std with n - 1; undone by x_hat * std + mean (SAELens, `layer_norm`)."""
    mean = x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True)
    return (x - mean) / (std + 1e-5), lambda x_hat: x_hat * std + mean


def constant_norm_rescale(x: Tensor) -> tuple[Tensor, Undo]:
    """x * sqrt(d_in) / |x| per token (SAELens, `constant_norm_rescale`); rms by another name but for its 1e-12."""
    scale = x.shape[-1] ** 0.5 / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return x * scale, lambda x_hat: x_hat / scale


INPUT_NORMS: dict[str, InputNorm] = {
    "none": none,
    "rms": rms,
    "layer_norm": layer_norm,
    "constant_norm_rescale": constant_norm_rescale,
}
"""A property of the release, selectable by `input_norm`. A fixed scale is no norm: it is folded into the weights."""
