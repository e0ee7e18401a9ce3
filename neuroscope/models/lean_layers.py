"""Decoder layers as the lean passes run them, described from the model's own modules.

A layer is described by its exact class; the weights stay in the modules (`joining` moves those of one input together),
and a linear layer that is no plain `nn.Linear` (quantised, GPT-2's Conv1D) is called as the module it is. A layer of a
class that is not known here has no description: `lean` and `lean_batch` then leave it to the model. That a description
is right is not believed: it is compared with the model's own forward pass before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neuroscope.models.joining import joined, plain
from neuroscope.models.kernels import Product

Op = Callable[[Tensor], Tensor]
"""From rows [n, d_in] to rows [n, d_out]."""


@dataclass(frozen=True, slots=True)
class ToOp:
    """What makes operations of modules, by `product` where the weights are plain."""

    product: Product
    joins: bool

    def __call__(self, module: nn.Module) -> Op:
        return linear(module, self.product)

    def together(self, *modules: nn.Module) -> Op | None:
        """One operation for modules of one input; None where they cannot or shall not be joined."""
        return joined(modules, self.product) if self.joins else None


Project = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


class NotLeanError(Exception):
    """This model has something that no description covers; the message says what. Never seen outside `models`."""


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """One decoder layer, for the tokens of any number of rows."""

    norm: Op
    project: Project
    """[n, d_model] -> queries [n * heads, head_dim], keys and values [n * kv_heads, head_dim]."""
    output: Op
    mlp: Op
    scaling: float
    q_norm: Op | None = None
    k_norm: Op | None = None
    rotary: str | None = None
    """Which table of the rotary embedding; None for learned positions."""
    softcap: float | None = None
    window: int | None = None
    after_attention: Op | None = None
    mlp_norm: Op | None = None
    """None: the MLP reads what attention reads."""
    after_mlp: Op | None = None
    parallel: bool = False
    """Attention and MLP both read the layer's input."""


def describe(layer: nn.Module, config: Any, product: Product, *, joins: bool) -> LeanLayer:
    """`product` multiplies with plain weights. Raises NotLeanError for a class that is not known.

    With `joins`, layers of one input become one product: for many rows its outputs would lie apart in memory.
    """
    module, name = type(layer).__module__, type(layer).__name__
    build = _BUILDERS.get(name)
    if build is None or not module.startswith("transformers.models."):
        raise NotLeanError(f"decoder layers of class {name} are not known")
    try:
        return build(layer, config, ToOp(product, joins))
    except AttributeError as error:
        raise NotLeanError(f"a {name} of another form: {error}") from error


def linear(module: nn.Module, product: Product) -> Op:
    """A plain linear layer by `product`; anything else as it is."""
    if not plain(module):
        return module
    weight: Any = module._parameters["weight"]
    bias: Any = module.bias
    if not weight.is_contiguous():
        product = F.linear
    return lambda x: product(x, weight, bias)


def norm(module: nn.Module) -> Op:
    """RMS norms in one operation, Gemma's with its gain of 1 + w in float32; layer norms as they are."""
    name = type(module).__name__
    if type(module) is nn.LayerNorm:
        return module
    weight: Any = module.weight
    shape = tuple(weight.shape)
    if name in ("Gemma2RMSNorm", "Gemma3RMSNorm"):
        eps = float(getattr(module, "eps"))  # noqa: B009 - nn.Module's types know no floats
        gain = 1.0 + weight.detach().float()
        if weight.dtype == torch.float32:
            return lambda x: F.rms_norm(x, shape, gain, eps)
        return lambda x: F.rms_norm(x.float(), shape, gain, eps).to(x.dtype)
    if name in _RMS_NORMS:
        epsilon = float(getattr(module, "variance_epsilon"))  # noqa: B009
        if weight.dtype == torch.float32:
            return lambda x: F.rms_norm(x, shape, weight, epsilon)
        return lambda x: weight * F.rms_norm(x.float(), shape, None, epsilon).to(x.dtype)
    raise NotLeanError(f"norms of class {name} are not known")


_RMS_NORMS = ("LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "Phi3RMSNorm")


def _separate(attention: Any, op: ToOp) -> Project:
    d, parts = attention.head_dim, (attention.q_proj, attention.k_proj, attention.v_proj)
    if (both := op.together(*parts)) is not None:
        return _joined(both, [part.out_features for part in parts], d)
    q, k, v = map(op, parts)
    return lambda x: (q(x).view(-1, d), k(x).view(-1, d), v(x).view(-1, d))


def _joined(both: Op, sizes: list[int], d: int) -> Project:
    """One matrix whose rows are all queries, then all keys, then all values."""

    def project(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = torch.split(both(x), sizes, dim=-1)
        return q.reshape(-1, d), k.reshape(-1, d), v.reshape(-1, d)

    return project


def _interleaved(both: Op, d: int) -> Project:
    """One matrix whose rows are query, key and value of each head in turn."""

    def project(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = both(x).view(-1, 3 * d).chunk(3, dim=-1)
        return q, k, v

    return project


def _in_place(act: Op) -> Op:
    """SiLU on what was just computed: no second buffer of that size to fill."""
    silu = type(act).__name__ in ("SiLU", "SiLUActivation")
    return (lambda x: F.silu(x, inplace=True)) if silu else act


def _gated(mlp: Any, op: ToOp) -> Op:
    down, act = op(mlp.down_proj), _in_place(mlp.act_fn)
    if (both := op.together(mlp.gate_proj, mlp.up_proj)) is not None:
        return _gated_by_one(both, act, down)
    gate, up = op(mlp.gate_proj), op(mlp.up_proj)
    return lambda x: down(act(gate(x)).mul_(up(x)))  # in place: what `act` returns is nobody else's


def _gated_by_one(both: Op, act: Op, down: Op) -> Op:
    """One matrix whose rows are all gates, then all ups."""

    def gated(x: Tensor) -> Tensor:
        gate, up = both(x).chunk(2, dim=-1)
        return down(act(gate).mul_(up))

    return gated


def _two(one: Op, act: Op, other: Op) -> Op:
    return lambda x: other(act(one(x)))


def _llama(layer: Any, config: Any, op: ToOp, **more: Any) -> LeanLayer:
    attention = layer.self_attn
    return LeanLayer(
        norm=norm(layer.input_layernorm),
        project=_separate(attention, op),
        output=op(attention.o_proj),
        mlp=_gated(layer.mlp, op),
        scaling=float(attention.scaling),
        **{"rotary": "", "mlp_norm": norm(layer.post_attention_layernorm), **more},
    )


def _mistral(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    return _llama(layer, config, op, window=config.sliding_window)


def _qwen2(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    return _llama(layer, config, op, window=layer.self_attn.sliding_window)


def _qwen3(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    attention = layer.self_attn
    norms = {"q_norm": norm(attention.q_norm), "k_norm": norm(attention.k_norm)}
    return _llama(layer, config, op, window=attention.sliding_window, **norms)


def _gemma2(layer: Any, config: Any, op: ToOp, **more: Any) -> LeanLayer:
    attention = layer.self_attn
    if not attention.is_causal:
        raise NotLeanError("attention that looks ahead is not known")
    return _llama(
        layer,
        config,
        op,
        window=attention.sliding_window,
        after_attention=norm(layer.post_attention_layernorm),
        mlp_norm=norm(layer.pre_feedforward_layernorm),
        after_mlp=norm(layer.post_feedforward_layernorm),
        **{"softcap": attention.attn_logit_softcapping, **more},
    )


def _gemma3(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    attention = layer.self_attn
    norms = {"q_norm": norm(attention.q_norm), "k_norm": norm(attention.k_norm)}
    # its config may name a cap on attention scores, its attention has none
    return _gemma2(layer, config, op, rotary=attention.layer_type, softcap=None, **norms)


def _phi3(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    attention, mlp, d = layer.self_attn, layer.mlp, layer.self_attn.head_dim
    sizes = [n * d for n in (config.num_attention_heads, *[config.num_key_value_heads] * 2)]
    return LeanLayer(
        norm=norm(layer.input_layernorm),
        project=_joined(op(attention.qkv_proj), sizes, d),
        output=op(attention.o_proj),
        mlp=_gated_by_one(op(mlp.gate_up_proj), _in_place(mlp.activation_fn), op(mlp.down_proj)),
        scaling=float(attention.scaling),
        rotary="",
        window=config.sliding_window,
        mlp_norm=norm(layer.post_attention_layernorm),
    )


def _phi(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    attention, mlp = layer.self_attn, layer.mlp
    norms = {}
    if attention.qk_layernorm:
        norms = {"q_norm": attention.q_layernorm, "k_norm": attention.k_layernorm}
    return LeanLayer(
        norm=norm(layer.input_layernorm),
        project=_separate(attention, op),
        output=op(attention.dense),
        mlp=_two(op(mlp.fc1), mlp.activation_fn, op(mlp.fc2)),
        scaling=float(attention.scaling),
        rotary="",
        parallel=True,
        **norms,
    )


def _gpt2(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    attention, mlp = layer.attn, layer.mlp
    if hasattr(layer, "crossattention") or attention.reorder_and_upcast_attn:
        raise NotLeanError("a GPT2Block with cross-attention or upcast attention is not known")
    return LeanLayer(
        norm=norm(layer.ln_1),
        project=_joined(op(attention.c_attn), [attention.split_size] * 3, attention.head_dim),
        output=op(attention.c_proj),
        mlp=_two(op(mlp.c_fc), mlp.act, op(mlp.c_proj)),
        scaling=float(attention.scaling),
        mlp_norm=norm(layer.ln_2),
    )


def _gpt_neox(layer: Any, config: Any, op: ToOp) -> LeanLayer:
    attention, mlp = layer.attention, layer.mlp
    return LeanLayer(
        norm=norm(layer.input_layernorm),
        project=_interleaved(op(attention.query_key_value), attention.head_size),
        output=op(attention.dense),
        mlp=_two(op(mlp.dense_h_to_4h), mlp.act, op(mlp.dense_4h_to_h)),
        scaling=float(attention.scaling),
        rotary="",
        mlp_norm=norm(layer.post_attention_layernorm),
        parallel=layer.use_parallel_residual,
    )


_BUILDERS: dict[str, Callable[[Any, Any, ToOp], LeanLayer]] = {
    "LlamaDecoderLayer": _llama,
    "MistralDecoderLayer": _mistral,
    "Qwen2DecoderLayer": _qwen2,
    "Qwen3DecoderLayer": _qwen3,
    "Gemma2DecoderLayer": _gemma2,
    "Gemma3DecoderLayer": _gemma3,
    "Phi3DecoderLayer": _phi3,
    "PhiDecoderLayer": _phi,
    "GPT2Block": _gpt2,
    "GPTNeoXLayer": _gpt_neox,
}
