"""Takes the residual stream at the output of one decoder layer (`blocks.L.hook_resid_post`).

The only place that registers a forward hook, and the only one that knows whether a layer returns a tensor or a
tuple. `output_hidden_states` is never used: its last entry is taken after the final norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from neuroscope.errors import ModelError

LAYER_PATHS = (
    "model.layers",  # Gemma, Llama, Mistral, Phi, Qwen
    "model.language_model.layers",  # Gemma 3 of 4b and more
    "language_model.model.layers",
    "transformer.h",  # GPT-2
    "gpt_neox.layers",  # GPT-NeoX, Pythia
)

FINAL_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")
"""Where families keep the final norm, beside the decoder layers."""


class _ForwardEnded(Exception):
    """Leaves a forward pass after the hooked layer; never seen outside this file."""


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The model's decoder layers, found by where families keep them.

    Raises ModelError when the model keeps them in none of the known places.
    """
    return _decoder(model)[1]


def decoder(model: nn.Module) -> nn.Module:
    """The module that holds the decoder layers and, beside them, the final norm. Raises as `decoder_layers`."""
    return _decoder(model)[0]


def final_norm(model: nn.Module) -> nn.Module:
    """The norm between the last decoder layer and the unembedding. Raises ModelError when none has a known name."""
    owner = decoder(model)
    for name in FINAL_NORMS:
        norm = getattr(owner, name, None)
        if isinstance(norm, nn.Module):
            return norm
    raise ModelError(f"No final norm found in {type(owner).__name__}: none of {', '.join(FINAL_NORMS)}.")


def _decoder(model: nn.Module) -> tuple[nn.Module, nn.ModuleList]:
    for path in LAYER_PATHS:
        owner: Any = None
        layers: Any = model
        for name in path.split("."):
            owner, layers = layers, getattr(layers, name, None)
        if isinstance(layers, nn.ModuleList):
            return owner, layers
    raise ModelError(
        f"{type(model).__name__} keeps its decoder layers in none of {', '.join(LAYER_PATHS)}. "
        "Add its path to LAYER_PATHS in neuroscope/models/hooks.py."
    )


class ResidualTap:
    """Holds the residual stream of the last forward pass at one layer."""

    def __init__(self, layer: int, ends_forward: bool) -> None:
        self.layer = layer
        self._ends_forward = ends_forward
        self._residual: Tensor | None = None

    def _hook(self, _module: nn.Module, _args: Any, output: Any) -> None:
        self._residual = output[0] if isinstance(output, tuple) else output
        if self._ends_forward:
            raise _ForwardEnded

    def run(self, forward: Callable[[], Any]) -> Any:
        """Calls `forward`; with `stop=True` it ends after the hooked layer and None comes back."""
        try:
            return forward()
        except _ForwardEnded:
            return None

    def take(self) -> Tensor:
        """The residual [batch, seq, d_model] of the last forward pass, once: a stale one is never returned."""
        residual, self._residual = self._residual, None
        if residual is None:
            raise ModelError(
                f"No forward pass has reached layer {self.layer} since the residual was last taken."
            )
        return residual


@contextmanager
def residual_at(model: nn.Module, layer: int, *, stop: bool = False) -> Iterator[ResidualTap]:
    """Hooks the output of decoder layer `layer` (zero-indexed) for as long as the context is open.

    With `stop=True`, a forward pass run through `tap.run` ends after that layer: later layers, the final norm
    and the unembedding cost nothing.
    """
    layers = decoder_layers(model)
    if not 0 <= layer < len(layers):
        raise ModelError(f"Layer {layer} was asked for; this model has layers 0 to {len(layers) - 1}.")
    tap = ResidualTap(layer, stop)
    handle = layers[layer].register_forward_hook(tap._hook)
    try:
        yield tap
    finally:
        handle.remove()


def residual_after(model: nn.Module, layer: int, forward: Callable[[], Any]) -> Tensor:
    """One forward pass that stops after `layer`; the residual [batch, seq, d_model] it left there."""
    with torch.inference_mode(), residual_at(model, layer, stop=True) as tap:
        tap.run(forward)
        return tap.take()
