"""Rows of whole windows through the model's own weights up to the hooked layer, for the sweep.

Against the model's own pass: no mask, no cache, residuals added in place, norms in one operation, and in float32
oneDNN's matrix product: BLAS here is MKL, which leaves AVX-512 unused on processors that are not Intel's (a quarter
slower on an EPYC). Used only where a few windows run both ways agree; nothing is timed, so that what a batch gives
depends on the batch alone.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroscope.errors import ModelError
from neuroscope.models.decode import TOLERANCE, distance
from neuroscope.models.hooks import decoder, decoder_layers, residual_after
from neuroscope.models.kernels import for_rows
from neuroscope.models.lean import RotaryTable, hooked
from neuroscope.models.lean_layers import LeanLayer, NotLeanError, describe
from neuroscope.models.packed import rounds_to

ROWS, WIDTH = 2, 24
"""Of the batch that is compared."""

log = logging.getLogger(__name__)


class LeanPass:
    """Raises NotLeanError when something of `model` up to `layer` is not known."""

    def __init__(self, model: Any, layer: int, context_length: int) -> None:
        owner: Any = decoder(model)
        config = model.config.get_text_config(decoder=True)
        self._modules = list(decoder_layers(model))[: layer + 1]
        self._embed = model.get_input_embeddings()
        weight = self._embed.weight
        if weight.device.type != "cpu":
            raise NotLeanError("it is not on a CPU")
        product = for_rows(weight.device, weight.dtype)
        self._layers = [describe(module, config, product, joins=False) for module in self._modules]
        if any(one.softcap is not None for one in self._layers):
            raise NotLeanError("its attention caps scores")
        if model.training or any(map(hooked, model.modules())):
            raise NotLeanError("the model is in training, or its modules have hooks")
        self._positions: nn.Module | None = getattr(owner, "wpe", None)
        rotary = getattr(owner, "rotary_emb", None)
        names = sorted({one.rotary for one in self._layers if one.rotary is not None})
        if names and rotary is None:
            raise NotLeanError("the rotary embedding is not where it is looked for")
        self._rotary = {name: RotaryTable(rotary, name, owner, context_length) for name in names}
        self._widest = min((one.window for one in self._layers if one.window is not None), default=None)

    def fits(self, width: int) -> bool:
        """Whether no sliding window cuts a row of `width` tokens, and nobody hooked a layer meanwhile."""
        return (self._widest is None or width <= self._widest) and not any(map(hooked, self._modules))

    @torch.inference_mode()
    def run(self, ids: Tensor) -> Tensor:
        """The residual [rows, width, d_model] at the hooked layer, of `ids` [rows, width] padded on the right."""
        rows, width = ids.shape
        x: Tensor = self._embed(ids)
        if self._positions is not None:
            x = x + self._positions(torch.arange(width))
        x = x.view(rows * width, -1)
        turns = {name: table.until(width, x) for name, table in self._rotary.items()}
        for layer in self._layers:
            x = _layer(layer, x, rows, turns)
        return x.view(rows, width, -1)


def _layer(layer: LeanLayer, x: Tensor, rows: int, turns: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
    """x [rows * width, d_model], which is overwritten."""
    normed = layer.norm(x)
    attended = layer.output(_attend(layer, normed, rows, turns))
    if layer.after_attention is not None:
        attended = layer.after_attention(attended)
    if layer.parallel:
        read = normed if layer.mlp_norm is None else layer.mlp_norm(x)
        return x.add_(attended.add_(layer.mlp(read)))
    x = x.add_(attended)
    changed = layer.mlp(x if layer.mlp_norm is None else layer.mlp_norm(x))
    return x.add_(changed if layer.after_mlp is None else layer.after_mlp(changed))


def _attend(layer: LeanLayer, x: Tensor, rows: int, turns: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
    """What each token of a row finds in those before it, as [rows * width, heads * head_dim]."""
    q, k, v = layer.project(x)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    width, d = len(x) // rows, q.shape[-1]
    q, k, v = (part.reshape(rows, width, -1, d) for part in (q, k, v))
    if layer.rotary is not None:
        cos, sin = turns[layer.rotary]
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    shared = q.shape[1] != k.shape[1]
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=layer.scaling, enable_gqa=shared)
    return found.transpose(1, 2).reshape(len(x), -1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first dimensions of x [rows, width, heads, head_dim] turned; the first half of `sin` is negated."""
    turned = cos.shape[-1]
    half = turned // 2
    cos, sin = cos[:, None], sin[:, None]
    out = torch.empty_like(x)
    torch.mul(x[..., :turned], cos, out=out[..., :turned])
    out[..., :half].addcmul_(x[..., half:turned], sin[..., :half])
    out[..., half:turned].addcmul_(x[..., :half], sin[..., half:])
    if turned < x.shape[-1]:
        out[..., turned:] = x[..., turned:]
    return out


def choose_pass(model: Any, layer: int, context_length: int) -> LeanPass | None:
    """The lean pass where it gives what the model's own gives, else None; the reason is logged."""
    try:
        lean = LeanPass(model, layer, context_length)
        _check(lean, model, layer, min(WIDTH, context_length))
    except NotLeanError as error:
        log.info("windows run by the model's own pass: %s", error)
        return None
    except (ModelError, RuntimeError, AttributeError, TypeError) as error:
        log.info("windows run by the model's own pass: the lean one fails: %s", error)
        return None
    return lean


def _check(lean: LeanPass, model: Any, layer: int, width: int) -> None:
    """Raises NotLeanError when the two differ by more than the order of sums."""
    if lean._widest is not None:
        width = min(width, lean._widest)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = (7919 * torch.arange(ROWS * width) + 13).remainder(vocabulary).view(ROWS, width)
    own = residual_after(model, layer, lambda: model(input_ids=ids, use_cache=False))
    apart = distance(lean.run(ids), own)
    if apart > TOLERANCE.get(rounds_to(model), 0.0):
        raise NotLeanError(f"the lean one gives other numbers, {apart:.2g} apart")
