"""Which output tokens a feature promotes and suppresses: its decoder direction through the unembedding.

    weight[feature, token] = (gain * W_dec[feature]) · W_U[token]

with `gain` the final norm's, whose division by the residual's size is left out: it is the same for all tokens. Where
the final norm is a layer norm, which takes away the mean, W_dec[feature] goes in less its own mean. Later layers are
skipped, so this is the direct effect only. Says nothing about what makes the feature fire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from neuroscope.autointerp.words import TokenText
from neuroscope.errors import ModelError
from neuroscope.models import hooks
from neuroscope.sources import replace_atomically

TOP = 10
FEATURE_BLOCK = 1024
TOKEN_BLOCK = 8_192
"""A block of logits is FEATURE_BLOCK x TOKEN_BLOCK floats: 32 MB."""
SIGNS = {"promoted": 1, "suppressed": -1}


@dataclass(frozen=True, slots=True, eq=False)
class FinalNorm:
    """What the norm before the unembedding does to a direction, but for the division by the residual's size."""

    gain: Tensor  # [d_model] float32
    centres: bool
    """It takes the mean away first: a layer norm, not an RMS norm."""

    def apply(self, directions: Tensor) -> Tensor:
        """`directions` [n, d_model] after the norm."""
        directions = directions.float()
        if self.centres:
            directions = directions - directions.mean(dim=-1, keepdim=True)
        return directions * self.gain.to(directions.device)


def final_norm(model: nn.Module) -> FinalNorm:
    """The final norm of `model`, found by what it does, so that families need no table.

    `v` has mean 0 and mean square 1, so RMS norms (gain `weight`, Gemma's `1 + weight`) and layer norms (gain
    `weight`, and a bias) all give `gain * v + bias`; the difference to `-v` leaves the bias out. A vector of ones is
    all mean: with that taken away, it gives what its opposite gives.
    """
    norm: Any = hooks.final_norm(model)
    weight: Tensor = norm.weight
    with torch.inference_mode():
        ones = torch.ones_like(weight)
        v = ones.clone()
        v[1::2] = -1
        gain = (norm(v).float() - norm(-v).float()) / 2 * v.float()
        centres = torch.equal(norm(ones), norm(-ones))
    return FinalNorm(gain, centres)


def unembedding(model: Any) -> Tensor:
    """W_U as [vocab, d_model]; a bias beside it (Phi) is the same for every feature and has no part here."""
    head = model.get_output_embeddings()
    if head is None:
        raise ModelError(
            f"{type(model).__name__} has no output embedding; promoted tokens cannot be computed."
        )
    weight: Tensor = head.weight.detach()
    return weight


def extreme_tokens(
    directions: Tensor, W_U: Tensor, shown: Tensor, k: int = TOP, *, token_block: int = TOKEN_BLOCK
) -> dict[str, tuple[Tensor, Tensor]]:
    """The k tokens of largest and of smallest weight for each feature, as `promoted` and `suppressed`.

    Each is (token ids, weights), both [features, k], the most extreme first. directions [features, d_model] behind the
    final norm, W_U [vocab, d_model]; `shown` [vocab] is False for tokens to leave out. Equal weights: lower token id
    first within a block of the vocabulary.
    """
    n, device = len(directions), directions.device
    best = {
        kind: (
            torch.zeros((n, k), dtype=torch.long, device=device),
            torch.full((n, k), -torch.inf, device=device),
        )
        for kind in SIGNS
    }
    for start in range(0, len(W_U), token_block):
        logits = directions @ W_U[start : start + token_block].to(directions).T  # [features, block]
        hidden = ~shown[start : start + token_block]
        for kind, sign in SIGNS.items():
            tokens, weights = best[kind]
            found = (sign * logits).masked_fill_(hidden, -torch.inf).topk(min(k, logits.shape[1]), dim=1)
            weights, order = torch.cat([weights, found.values], dim=1).topk(k, dim=1)
            best[kind] = torch.cat([tokens, found.indices + start], dim=1).gather(1, order), weights
    return {kind: (tokens, SIGNS[kind] * weights) for kind, (tokens, weights) in best.items()}


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
    norm, W_U = final_norm(model), W_U.to(device)
    parts = []
    with torch.inference_mode():
        for start in progress(range(0, len(W_dec), feature_block)):
            block = norm.apply(W_dec[start : start + feature_block])
            for kind, (ids, weights) in extreme_tokens(block, W_U, shown, k).items():
                parts.append(_rows(start, kind, ids, weights))
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
