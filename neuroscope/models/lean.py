"""One token through the model's own weights, with nothing computed or allocated that one token does not need.

No mask is built, no keyword travels through layers, the rotary embedding is a row of a table, keys and values that
several query heads share are not repeated, and the residual is taken as it passes by. The cache is the backend's own.
The layers are described in `lean_layers`; whether this step is used is `decode`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import Cache

from neuroscope.errors import ModelError
from neuroscope.models.cache import GrowingLayer
from neuroscope.models.hooks import decoder, decoder_layers, final_norm
from neuroscope.models.kernels import Kernel
from neuroscope.models.lean_layers import LeanLayer, NotLeanError, describe, linear, norm

TABLE_BLOCK = 256
"""Positions whose rotary embedding is computed together; always the same ones, so that their bits are the same."""

FAULTS = (ModelError, RuntimeError, AttributeError, TypeError)
"""What is raised where the parts of a model behave otherwise than was expected of them."""

Rows = dict[str, tuple[Tensor, Tensor]]
"""Of each rotary table, cosines and sines [1, turned] of one position, or [positions, turned]."""

Look = Callable[[LeanLayer, Tensor, Tensor, Tensor], Tensor]
"""What a layer's queries find, as [1, all], in the keys and values so far and the new ones, each [heads, head_dim]."""


class LeanStep:
    """Raises NotLeanError when something of `model` is not known: another class of layer, norm or rotary embedding."""

    def __init__(self, model: Any, layer: int, context_length: int, kernel: Kernel) -> None:
        owner: Any = decoder(model)
        config = model.config.get_text_config(decoder=True)
        self._modules = decoder_layers(model)
        self._layers = [describe(module, config, kernel.product, joins=True) for module in self._modules]
        self._kernel = kernel
        self._hooked = layer
        self._embed = model.get_input_embeddings()
        self._positions: nn.Module | None = getattr(owner, "wpe", None)
        self._norm = norm(final_norm(model))
        self._head = linear(model.get_output_embeddings(), kernel.product)
        self._cap: float | None = getattr(config, "final_logit_softcapping", None)
        rotary = getattr(owner, "rotary_emb", None)
        names = sorted({one.rotary for one in self._layers if one.rotary is not None})
        if names and rotary is None:
            raise NotLeanError("the rotary embedding is not where it is looked for")
        self._rotary = {name: RotaryTable(rotary, name, owner, context_length) for name in names}
        if model.training or any(hooked(module) for module in model.modules()):
            raise NotLeanError("the model is in training, or its modules have hooks")

    @property
    def way(self) -> str:
        """In a word or two."""
        return f"lean, {self._kernel.name}"

    @property
    def weights(self) -> Tensor:
        """The token embedding [vocab, d_model]."""
        weights: Tensor = self._embed.weight
        return weights

    @property
    def layers(self) -> list[LeanLayer]:
        return self._layers

    def fits(self, cache: Cache) -> bool:
        """Whether this step and the model's own forward pass are the same now: nobody hooked a layer meanwhile."""
        return all(isinstance(one, GrowingLayer) for one in cache.layers) and not any(
            map(hooked, self._modules)
        )

    def keeps(self, cache: Cache) -> bool:
        """Whether `cache` is to be used again with its memory, once it is emptied."""
        return False

    def run(self, token: int, position: int, cache: Cache) -> tuple[Tensor, Tensor]:
        """Append `token` to `cache`: logits [vocab] float32 and the residual [1, d_model] at the hooked layer."""
        with self._kernel.active():
            device = self._embed.weight.device
            at = None if self._positions is None else torch.tensor([position], device=device)
            x = self._embedded(torch.tensor([token], device=device), at)
            rows = {name: table.row(position, x) for name, table in self._rotary.items()}
            return self._through(x, rows, (partial(_look, kept) for kept in cache.layers))

    def run_static(
        self, token: Tensor, position: Tensor, tables: Rows, looks: Iterable[Look]
    ) -> tuple[Tensor, Tensor]:
        """As `run`, of a token and a position [1] and tables [positions, turned] on the device: no number is read."""
        with self._kernel.active():
            x = self._embedded(token, position)
            rows = {
                name: (cos.index_select(0, position), sin.index_select(0, position))
                for name, (cos, sin) in tables.items()
            }
            return self._through(x, rows, looks)

    def tables(self, width: int) -> Rows:
        """Cosines and sines [width, turned] of the first `width` positions."""
        like = self._embedded(*[torch.zeros(1, dtype=torch.long, device=self._embed.weight.device)] * 2)
        return {name: table.until(width, like) for name, table in self._rotary.items()}

    def _embedded(self, token: Tensor, position: Tensor | None) -> Tensor:
        """[1, d_model]; `position` is read where positions are learned."""
        x: Tensor = self._embed(token)
        if self._positions is not None:
            x = x + self._positions(position)
        return x

    def _through(self, x: Tensor, rows: Rows, looks: Iterable[Look]) -> tuple[Tensor, Tensor]:
        residual = x
        for number, (layer, look) in enumerate(zip(self._layers, looks, strict=True)):
            x = _layer(layer, x, rows, look)
            if number == self._hooked:
                residual = x
        logits: Tensor = self._head(self._norm(x))[0]
        if self._cap is not None:
            logits = (logits / self._cap).tanh() * self._cap
        return logits.float(), residual


def _layer(layer: LeanLayer, x: Tensor, rows: Rows, look: Look) -> Tensor:
    normed = layer.norm(x)
    q, k, v = layer.project(normed)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    if layer.rotary is not None:
        cos, sin = rows[layer.rotary]
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
    attended = layer.output(look(layer, q, k, v))
    if layer.after_attention is not None:
        attended = layer.after_attention(attended)
    if layer.parallel:
        read = normed if layer.mlp_norm is None else layer.mlp_norm(x)
        return x + (attended + layer.mlp(read))
    x = x + attended
    changed = layer.mlp(x if layer.mlp_norm is None else layer.mlp_norm(x))
    return x + (changed if layer.after_mlp is None else layer.after_mlp(changed))


def _look(kept: GrowingLayer, layer: LeanLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """In all that is kept, or the sliding window's part of it."""
    keys, values = kept.update(k[None, :, None], v[None, :, None])
    if layer.window is not None and keys.shape[-2] > layer.window:
        keys, values = keys[:, :, -layer.window :], values[:, :, -layer.window :]
    return attend(layer, q, keys, values)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first of the dimensions turned, x [heads, head_dim]; the first half of `sin` [1, turned] is negated."""
    turned = cos.shape[-1]
    if turned == x.shape[-1]:
        return torch.addcmul(x * cos, x.roll(turned // 2, -1), sin)
    return torch.cat([_rotate(x[:, :turned], cos, sin), x[:, turned:]], dim=-1)


def attend(layer: LeanLayer, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """What the queries [heads, head_dim] find in keys and values [1, kv_heads, positions, head_dim], as [1, all].

    `mask` [1, 1, 1, positions] is added to the scores. The query heads that share keys are the rows of one small
    matrix: nothing is repeated.
    """
    groups = q.reshape(1, keys.shape[1], -1, q.shape[-1])
    if layer.softcap is None:
        found = F.scaled_dot_product_attention(groups, keys, values, attn_mask=mask, scale=layer.scaling)
    else:
        scores = groups @ keys.transpose(-1, -2) * (layer.scaling / layer.softcap)
        scores = scores.tanh() * layer.softcap
        if mask is not None:
            scores = scores + mask
        found = scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ values
    return found.reshape(1, -1)


def hooked(module: nn.Module) -> bool:
    """Whether someone reads or changes what goes through `module`."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


class RotaryTable:
    """Cosines and sines of all positions so far, by the model's own module."""

    def __init__(self, rotary: Any, name: str, owner: Any, context_length: int) -> None:
        types = rotary.rope_type
        if "dynamic" in (types.values() if isinstance(types, dict) else [types]):
            raise NotLeanError("a rotary embedding that changes with the length is not known")
        self._rotary = rotary
        self._layer_type = (name,) if name else ()
        self._context_length = context_length
        self._cos: list[Tensor] = []
        self._sin: list[Tensor] = []
        self._blocks: list[tuple[Tensor, Tensor]] = []
        """What the rows are views of."""

    def row(self, position: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [1, turned] in the dtype of x, sines with the sign of what they multiply."""
        while position >= len(self._cos):
            start = len(self._cos)
            stop = min(start + TABLE_BLOCK, self._context_length)
            ids = torch.arange(start, stop, device=x.device)[None]
            cos, sin = self._rotary(x, ids, *self._layer_type)
            first, second = sin[0].chunk(2, dim=-1)
            block = cos[0], torch.cat([-first, second], dim=-1)
            self._blocks.append(block)
            self._cos += block[0].unsqueeze(1).unbind()
            self._sin += block[1].unsqueeze(1).unbind()
        return self._cos[position], self._sin[position]

    def until(self, width: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of the first `width` positions, [width, turned]."""
        self.row(width - 1, x)
        blocks = self._blocks[: -(-width // TABLE_BLOCK)]
        cos, sin = (torch.cat(parts)[:width] for parts in zip(*blocks, strict=True))
        return cos, sin
