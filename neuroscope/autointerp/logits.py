"""Which output tokens a feature promotes and suppresses: its decoder direction through the unembedding.

    weight[feature, token] = W_dec[feature] · (gain * W_U[token])

with `gain` the final norm's, whose division by the residual's size is left out: it is the same for all tokens. Later
layers are skipped, so this is the direct effect only. Says nothing about what makes the feature fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from neuroscope.autointerp.words import TokenText
from neuroscope.errors import ModelError
from neuroscope.sources import replace_atomically

TOP = 10
FEATURE_BLOCK = 1024
TOKEN_BLOCK = 16_384
"""A block of logits is FEATURE_BLOCK x TOKEN_BLOCK floats: 64 MB."""

_FINAL_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")


def final_norm_gain(model: nn.Module) -> Tensor:
    """The final norm's factor per residual dimension, [d_model].

    An RMS norm maps a vector of ones to its gain, whether it multiplies by `weight` or, as Gemma does, by
    `1 + weight`. A layer norm maps it to its bias: there the gain is `weight`.
    """
    decoder: Any = getattr(model, "base_model", model)
    for name in _FINAL_NORMS:
        norm: Any = getattr(decoder, name, None)
        if norm is not None:
            weight: Tensor = norm.weight
            if isinstance(norm, nn.LayerNorm):
                return weight.detach().float()
            with torch.inference_mode():
                gain: Tensor = norm(torch.ones_like(weight)[None])[0]
            return gain.float()
    raise ModelError(
        f"No final norm found in {type(decoder).__name__}: none of {', '.join(_FINAL_NORMS)}. "
        "Promoted tokens cannot be computed for this model."
    )


def unembedding(model: Any) -> Tensor:
    """W_U as [vocab, d_model]."""
    head = model.get_output_embeddings()
    if head is None:
        raise ModelError(
            f"{type(model).__name__} has no output embedding; promoted tokens cannot be computed."
        )
    weight: Tensor = head.weight.detach()
    return weight


def top_tokens(
    W_dec: Tensor, W_U: Tensor, gain: Tensor, shown: Tensor, k: int = TOP, *, token_block: int = TOKEN_BLOCK
) -> tuple[Tensor, Tensor]:
    """The k tokens of largest weight for each feature, and their weights: both [features, k], largest first.

    W_dec [features, d_model], W_U [vocab, d_model], gain [d_model]; `shown` [vocab] is False for tokens to leave out.
    Equal weights: lower token id first within a block of the vocabulary.
    """
    directions = W_dec.float() * gain  # [features, d_model]
    weights = torch.full((len(W_dec), k), -torch.inf, device=W_dec.device)
    tokens = torch.zeros((len(W_dec), k), dtype=torch.long, device=W_dec.device)
    for start in range(0, len(W_U), token_block):
        block = W_U[start : start + token_block].to(directions)  # [block, d_model]
        logits = directions @ block.T  # [features, block]
        logits[:, ~shown[start : start + token_block]] = -torch.inf
        best = logits.topk(min(k, logits.shape[1]), dim=1)
        weights, order = torch.cat([weights, best.values], dim=1).topk(k, dim=1)
        tokens = torch.cat([tokens, best.indices + start], dim=1).gather(1, order)
    return tokens, weights


def compute_logits(
    *,
    W_dec: Tensor,
    model: nn.Module,
    tokens: TokenText,
    out: Path,
    excluded: Iterable[int] = (),
    top: int = TOP,
    feature_block: int = FEATURE_BLOCK,
    progress: Callable[[range], Iterable[int]] = iter,
) -> int:
    """Writes logits.parquet (feature, kind, rank, token_id, token, weight) and returns its number of rows.

    `excluded` are token ids never shown (special tokens); tokens without text are left out too. Memory beyond the
    weights: one block of logits.
    """
    W_U, device = unembedding(model), W_dec.device
    if W_dec.shape[1] != W_U.shape[1]:
        raise ModelError(f"The SAE decodes to {W_dec.shape[1]} dimensions, the model has {W_U.shape[1]}.")
    texts = [tokens(i) for i in range(len(W_U))]
    shown = torch.tensor([bool(text) for text in texts], device=device)
    shown[[i for i in excluded if i < len(texts)]] = False
    k = min(top, int(shown.sum()))
    gain, W_U = final_norm_gain(model).to(device), W_U.to(device)
    parts = []
    with torch.inference_mode():
        for start in progress(range(0, len(W_dec), feature_block)):
            block = W_dec[start : start + feature_block]
            for kind, sign in (("promoted", 1), ("suppressed", -1)):
                ids, weights = top_tokens(sign * block, W_U, gain, shown, k)
                parts.append(_rows(start, kind, ids, sign * weights))
    frame = pl.concat(parts).sort("feature", "kind", "rank")
    frame = frame.with_columns(token=pl.Series([texts[i] for i in frame["token_id"]], dtype=pl.String))
    with replace_atomically(out) as temporary:
        frame.select("feature", "kind", "rank", "token_id", "token", "weight").write_parquet(temporary)
    return len(frame)


def _rows(start: int, kind: str, ids: Tensor, weights: Tensor) -> pl.DataFrame:
    n, k = ids.shape
    return pl.DataFrame(
        {
            "feature": np.repeat(np.arange(start, start + n, dtype=np.int32), k),
            "kind": [kind] * (n * k),
            "rank": np.tile(np.arange(k, dtype=np.int32), n),
            "token_id": ids.cpu().numpy().astype(np.int32).ravel(),
            "weight": weights.cpu().numpy().astype(np.float32).ravel(),
        }
    )
