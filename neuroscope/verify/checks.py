"""Single checks: each says in numbers whether one thing is as it must be, and when not, what usually causes it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from neuroscope.models.hooks import decoder_layers, final_norm
from neuroscope.models.packed import rounds_to
from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.norms import INPUT_NORMS
from neuroscope.verification import Check, Fidelity
from neuroscope.verify.subject import Subject

PROBE_TOKENS = 256
"""Positions that the arithmetic of the encoder is recomputed on."""
CACHE_TOKENS = 24
"""Positions that are decoded one by one."""
ENCODE_TOLERANCE = 1e-4
"""Of the largest pre-activation: float32 sums over thousands of terms stay a hundred times below."""
CACHE_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.01}
"""Relative distance of two residuals by different kernels: dtype's rounding, grown over the layers."""
ALIGNMENT = 0.1
"""Least median cosine of a feature's encoder column and decoder row; unrelated directions have about 0."""
L0_FACTOR = 2.0
"""Published L0s are means over another text."""
MAX_FVU = 0.6
"""No released SAE leaves this much; one on the wrong layer or model leaves more than all."""
NORM_MARGIN = 1.02
"""The configured norm must not explain less than the best by more than this."""


def _judge(name: str, good: bool, measured: float | None, limit: str, what: str, cause: str) -> Check:
    return Check(name, "ok" if good else "off", measured, limit, what if good else f"{what} {cause}")


def encode(subject: Subject) -> Check:
    """`sae.encode` against the formula in float64, and the gate's strictness on a tie."""
    sae, x = subject.sae, _probe(subject)
    found = sae.encode(x).double()
    pre = reference_pre(sae, x)
    expected = reference_acts(sae, pre)
    scale = float(pre.abs().max())
    near = (pre - sae.threshold.double()).abs() <= ENCODE_TOLERANCE * scale
    if sae.k is not None:  # rounding may also swap the last of the k
        smallest = expected.masked_fill(expected <= 0, torch.inf).min(-1, keepdim=True).values
        near |= (pre - smallest).abs() <= ENCODE_TOLERANCE * scale
    difference = float((found - expected).abs().masked_fill(near, 0).max()) / scale
    if not _strict(sae):
        return Check(
            "encode",
            "off",
            None,
            "acts = 0 where pre = threshold",
            "A feature exactly at its threshold fires: the gate is `>=`, and must be `>`.",
        )
    return _judge(
        "encode",
        difference <= ENCODE_TOLERANCE,
        difference,
        f"<= {ENCODE_TOLERANCE:g} of the largest pre-activation",
        "The encoder against its formula in float64.",
        "Usually reduced precision of matrix products (TF32), or an encoder changed in code.",
    )


def weights(subject: Subject) -> Check:
    """Each feature is written in the direction in which it is read: encoder columns and decoder rows agree."""
    sae = subject.sae
    assert sae.W_dec is not None
    columns = nn.functional.normalize(sae.W_enc, dim=0)
    rows = nn.functional.normalize(sae.W_dec, dim=1)
    cosine = float((columns.T * rows).sum(-1).median())
    return _judge(
        "weights",
        cosine >= ALIGNMENT,
        cosine,
        f">= {ALIGNMENT:g}",
        "Median cosine of a feature's encoder column and decoder row.",
        "Usually a transposed or reordered matrix: check sae.format.",
    )


def hook(subject: Subject) -> Check:
    """The hooked residual against what the next module of the model is given, taken in a pass of its own."""
    ids = torch.tensor([subject.windows[0]])
    hooked = subject.backend.residuals(ids, torch.ones_like(ids, dtype=torch.bool))[0].float()
    expected = _into_next(subject, ids).float()
    difference = relative(hooked, expected)
    limit = CACHE_TOLERANCE.get(rounds_to(subject.model), 0.05)
    return _judge(
        "hook",
        difference <= limit,
        difference,
        f"<= {limit:g} relative",
        f"The residual after layer {subject.backend.layer} against the input of the module that follows.",
        "Usually a hook on another layer, before the layer's last addition, or after the final norm.",
    )


@torch.inference_mode()
def cache(subject: Subject) -> Check:
    """Token by token through the cache against one pass over all."""
    ids = subject.windows[0][:CACHE_TOKENS]
    backend = subject.backend
    backend.rewind(0)
    steps = torch.cat([backend.forward([token]).residual for token in ids])
    backend.rewind(0)
    whole = backend.forward(ids).residual
    backend.rewind(0)
    dtype = rounds_to(subject.model)
    limit = CACHE_TOLERANCE.get(dtype, 0.05)
    difference = relative(steps.float(), whole.float())
    return _judge(
        "cache",
        difference <= limit,
        difference,
        f"<= {limit:g} relative ({str(dtype).removeprefix('torch.')})",
        "Residuals of cached decoding against one pass over the whole text.",
        "Usually wrong positions or an attention mask that the cache does not keep.",
    )


def bos(subject: Subject) -> Check:
    """Exactly one BOS at the start of what the model reads, in chat prompts and in the sweep's windows."""
    bos_id = subject.chat.bos_id
    if bos_id is None:
        return Check("bos", "skipped", None, "one", "The tokenizer has no beginning-of-sequence token.")
    starts = list(subject.windows) if subject.bos else []
    if subject.chat.tokenizer.chat_template is not None:
        prompt = subject.chat.render([{"role": "user", "content": "Where is Paris?"}]).ids
        if prompt[:1] == [bos_id] or subject.chat.adds_bos:  # some templates begin with another token
            starts.append(prompt)
    # Only leading ones count: in ChatML the role marker of every turn may be the BOS token.
    counts = [next((i for i, token in enumerate(ids) if token != bos_id), len(ids)) for ids in starts]
    worst = max(counts, key=lambda count: abs(count - 1), default=1)
    return _judge(
        "bos",
        worst == 1,
        float(worst),
        "1",
        "Beginning-of-sequence tokens before a text.",
        "Usually a template that writes one and a tokenizer that adds another.",
    )


def l0(subject: Subject, fidelity: Fidelity) -> Check:
    """Mean number of active features against the release's own figure."""
    published = subject.published_l0
    if published is None:
        return Check(
            "l0",
            "skipped",
            fidelity.l0,
            "no published L0",
            "Mean features active on a token. The pairing names no published L0.",
        )
    low, high = published / L0_FACTOR, published * L0_FACTOR
    return _judge(
        "l0",
        low <= fidelity.l0 <= high,
        fidelity.l0,
        f"{low:.3g} to {high:.3g} (published {published:g})",
        "Mean features active on a token.",
        "Usually an input norm applied to weights that have it folded in, another layer, or another model.",
    )


def fvu(fidelity: Fidelity) -> Check:
    """Share of the residual's variance that the SAE leaves unexplained."""
    return _judge(
        "fvu",
        fidelity.fvu <= MAX_FVU,
        fidelity.fvu,
        f"<= {MAX_FVU:g}",
        "Fraction of variance unexplained, over all text.",
        "Usually an SAE of another model or layer, or a wrong input norm.",
    )


def input_norm(subject: Subject, by_norm: dict[str, Fidelity]) -> Check:
    """Of all input norms, the configured one explains most."""
    name = subject.sae.input_norm
    best = min(by_norm, key=lambda norm: by_norm[norm].fvu)
    ratio = by_norm[name].fvu / max(by_norm[best].fvu, 1e-12)
    return _judge(
        "input_norm",
        ratio <= NORM_MARGIN,
        ratio,
        f"<= {NORM_MARGIN:g} times the best norm's",
        f"FVU with the configured input norm ({name}) by the smallest of any.",
        f"{best} explains more: set sae.input_norm to {best}, or to null for the format's own.",
    )


def reference_pre(sae: SparseAutoencoder, x: Tensor) -> Tensor:
    """norm(x) @ W_enc + b_enc in float64, [n, d_sae]."""
    normed, _ = INPUT_NORMS[sae.input_norm](x.double())
    return normed @ sae.W_enc.double() + sae.b_enc.double()


def reference_acts(sae: SparseAutoencoder, pre: Tensor) -> Tensor:
    """The activation function, written out: relu, the gate, and the k largest where there is a k."""
    acts = torch.where(pre > sae.threshold.double(), pre.clamp_min(0), torch.zeros_like(pre))
    if sae.k is None:
        return acts
    least = acts.topk(min(sae.k, acts.shape[-1]), dim=-1).values[:, -1:]
    return torch.where(acts >= least, acts, torch.zeros_like(acts))


def relative(found: Tensor, expected: Tensor) -> float:
    """Largest distance of two rows by the length of the expected one."""
    distance = torch.linalg.vector_norm(found - expected, dim=-1)
    return float((distance / torch.linalg.vector_norm(expected, dim=-1).clamp_min(1e-12)).max())


def _probe(subject: Subject) -> Tensor:
    return torch.cat([x[:PROBE_TOKENS] for x in subject.residuals.values()])[:PROBE_TOKENS]


def _strict(sae: SparseAutoencoder) -> bool:
    """Whether a pre-activation that equals its threshold stays silent, by an SAE where all do."""
    tied = copy.copy(sae)
    tied.W_enc = torch.zeros_like(sae.W_enc)
    tied.b_enc = torch.ones_like(sae.b_enc)
    tied.threshold = torch.ones_like(sae.threshold)
    return not bool(tied.encode(torch.ones(1, sae.d_in, device=sae.device)).any())


@torch.inference_mode()
def _into_next(subject: Subject, ids: Tensor) -> Tensor:
    """[seq, d_in]: the input of the layer after the hooked one, or of what follows the last layer."""
    layers = decoder_layers(subject.model)
    taken: list[Tensor] = []

    def take(_module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        taken.append(args[0] if args else kwargs["hidden_states"])

    following = subject.backend.layer + 1
    module = layers[following] if following < len(layers) else final_norm(subject.model)
    handle = module.register_forward_pre_hook(take, with_kwargs=True)
    try:
        subject.model(input_ids=ids.to(subject.backend.device), use_cache=False)
    finally:
        handle.remove()
    return taken[0][0]
