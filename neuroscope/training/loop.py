"""Trains a sparse autoencoder on the pairing's own residual stream, and writes it in Gemma Scope's layout.

BatchTopK (Bussmann et al. 2024, arXiv 2412.06410) with an auxiliary loss for dead features (Gao et al. 2024,
arXiv 2406.04093); thresholds are fixed at the end, which makes it a JumpReLU SAE. Inputs are divided by one fixed
scale, folded into the weights at the end as Gemma Scope does, so that encoding needs none. Where activations come
from is `data`'s business.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from neuroscope.errors import ConfigError, NeuroscopeError
from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.formats import gemma_scope
from neuroscope.sources import file_sha256, replace_atomically
from neuroscope.training.data import ActivationFiles

CHECKPOINT_STEPS = 200
DENSE = 0.5
"""A feature that fires on more than this share of tokens counts as dense in the card."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How an SAE is trained; stands in its card."""

    width: int = 4096
    k: int = 32
    """Mean number of active features per token."""
    steps: int = 3000
    batch: int = 2048
    lr: float = 8e-4
    warmup: int = 100
    """Steps in which the learning rate rises from zero."""
    decay: float = 0.3
    """Share of the steps, at the end, in which it falls to zero."""
    aux_k: int = 128
    aux_weight: float = 1 / 32
    dead_tokens: int = 300_000
    """A feature that has not fired for this many tokens is dead."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.k <= self.width:
            raise ConfigError(f"training.k is {self.k}; it must be from 1 to training.width, {self.width}.")


@dataclass(slots=True)
class TrainingState:
    """All that a restart needs. Inputs are in scaled units: mean squared norm d_in."""

    W_enc: Tensor  # [d_in, width]
    b_enc: Tensor  # [width]
    W_dec: Tensor  # [width, d_in], rows of unit norm
    b_dec: Tensor  # [d_in]
    silent_tokens: Tensor  # [width] tokens since the feature last fired
    threshold: float = 0.0
    """Moving average of the smallest activation that BatchTopK kept."""
    step: int = 0

    @property
    def parameters(self) -> list[Tensor]:
        return [self.W_enc, self.b_enc, self.W_dec, self.b_dec]


def initial_state(mean: Tensor, plan: TrainingPlan) -> TrainingState:
    """Random unit decoder rows, the encoder their transpose, b_dec the mean input."""
    generator = torch.Generator().manual_seed(plan.seed)
    W_dec = functional.normalize(torch.randn(plan.width, len(mean), generator=generator), dim=1)
    state = TrainingState(
        W_enc=W_dec.T.contiguous(),
        b_enc=torch.zeros(plan.width),
        W_dec=W_dec,
        b_dec=mean.clone(),
        silent_tokens=torch.zeros(plan.width, dtype=torch.int64),
    )
    for parameter in state.parameters:
        parameter.requires_grad_()
    return state


def batch_top_k(pre: Tensor, k: int, guess: float) -> tuple[Tensor, Tensor]:
    """Rows and features of the k x batch largest entries of pre [batch, width] above zero, ordered by row.

    `guess` is a value expected to lie below the smallest one kept; a bad guess costs time, never exactness.
    """
    wanted = k * len(pre)
    rows, features = torch.nonzero(pre > guess, as_tuple=True)
    if len(rows) < wanted:
        rows, features = torch.nonzero(pre > 0, as_tuple=True)
    values = pre.detach()[rows, features]
    if len(values) > wanted:
        kept = torch.topk(values, wanted, sorted=False).indices.sort().values
        rows, features = rows[kept], features[kept]
    return rows, features


def decode_sparse(rows: Tensor, features: Tensor, values: Tensor, W_dec: Tensor, batch: int) -> Tensor:
    """The sum of values x W_dec rows per batch row [batch, d_in], touching only the active rows of W_dec."""
    offsets = torch.searchsorted(rows, torch.arange(batch, device=rows.device))
    return functional.embedding_bag(features, W_dec, offsets, mode="sum", per_sample_weights=values)


def losses(x: Tensor, state: TrainingState, plan: TrainingPlan) -> tuple[Tensor, Tensor, Tensor, float]:
    """(fraction of variance unexplained, auxiliary loss, features that fired, smallest activation kept)."""
    # b_dec is taken out after the product, so that no gradient with respect to x is computed.
    pre = x @ state.W_enc + (state.b_enc - state.b_dec @ state.W_enc)  # [batch, width]
    rows, features = batch_top_k(pre, plan.k, 0.7 * state.threshold)
    values = pre[rows, features]
    x_hat = decode_sparse(rows, features, values, state.W_dec, len(x)) + state.b_dec
    error = x - x_hat
    reconstruction = error.square().sum() / (x - x.mean(0)).square().sum()
    fired = torch.zeros(plan.width, dtype=torch.bool).index_fill_(0, features, True)
    dead = torch.nonzero(state.silent_tokens > plan.dead_tokens).flatten()
    auxiliary = x.new_zeros(())
    if len(dead):
        # Dead features learn to explain what the living ones leave over.
        left_over = error.detach()
        pre_dead = (x - state.b_dec.detach()) @ state.W_enc[:, dead] + state.b_enc[dead]
        best = torch.topk(torch.relu(pre_dead), min(plan.aux_k, len(dead)), dim=1)
        guessed = functional.embedding_bag(
            best.indices, state.W_dec[dead], mode="sum", per_sample_weights=best.values
        )
        auxiliary = (left_over - guessed).square().sum() / left_over.square().sum()
    smallest = float(values.detach().min()) if len(values) else 0.0
    return reconstruction, auxiliary, fired, smallest


def train_step(x: Tensor, state: TrainingState, optimizer: torch.optim.Adam, plan: TrainingPlan) -> float:
    """One step on scaled inputs x [batch, d_in]; returns the fraction of variance unexplained before it."""
    reconstruction, auxiliary, fired, smallest = losses(x, state, plan)
    loss = reconstruction + plan.aux_weight * auxiliary
    if not torch.isfinite(loss):
        raise NeuroscopeError(f"Training diverged at step {state.step}: the loss is {float(loss)}. Lower lr.")
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        # Rows keep unit norm: the gradient along them would only be undone.
        gradient = state.W_dec.grad
        assert gradient is not None
        gradient -= (gradient * state.W_dec).sum(1, keepdim=True) * state.W_dec
        for group in optimizer.param_groups:
            group["lr"] = plan.lr * schedule(state.step, plan)
        optimizer.step()
        state.W_dec.copy_(functional.normalize(state.W_dec, dim=1))
        state.silent_tokens += len(x)
        state.silent_tokens[fired] = 0
    rate = 0.01 if state.threshold else 1.0
    state.threshold += rate * (smallest - state.threshold)
    state.step += 1
    return float(reconstruction.detach())


def schedule(step: int, plan: TrainingPlan) -> float:
    """Factor of the learning rate: linear warm-up, constant, linear decay to zero."""
    left = (plan.steps - step) / max(1, math.ceil(plan.steps * plan.decay))
    return min(1.0, (step + 1) / max(1, plan.warmup), left)


def train(
    files: ActivationFiles, plan: TrainingPlan, out: Path, *, notes: dict[str, Any], checkpoint: Path
) -> dict[str, Any]:
    """Trains on `files` and writes `out`/params.npz and `out`/card.json; returns the card.

    The state is kept in `checkpoint` every 200 steps: a killed run goes on from there. `notes` go into the card.
    """
    if not files.tokens("held_out"):
        raise NeuroscopeError(
            "No document is held out to measure by: raise training.held_out or training.tokens."
        )
    state, optimizer = _restore(checkpoint, files, plan)
    scale = files.scale
    with tqdm(
        total=plan.steps, initial=state.step, desc="train", unit="step", mininterval=2, file=sys.stderr
    ) as bar:
        for x in files.batches(plan.batch, plan.seed, start=state.step):
            if state.step >= plan.steps:
                break
            unexplained = train_step(torch.from_numpy(x).float() * scale, state, optimizer, plan)
            dead = int((state.silent_tokens > plan.dead_tokens).sum())
            bar.set_postfix(FVU=f"{unexplained:.3f}", dead=dead, refresh=False)
            bar.update()
            if state.step % CHECKPOINT_STEPS == 0:
                _save(checkpoint, state, optimizer, plan, files.key)
    sae = finished(state, scale, calibrated_threshold(state, files, plan))
    card = {
        "format": "gemma_scope",
        "plan": asdict(plan),
        "steps": state.step,
        "training_tokens": files.tokens("train"),
        "tokens_seen": state.step * plan.batch,
        "input_scale": scale,
        "held_out": evaluate(sae, files.held_out()),
        **notes,
    }
    out.mkdir(parents=True, exist_ok=True)
    with replace_atomically(out / "params.npz") as temporary:
        gemma_scope.save(sae, temporary)
    card["sha256"] = file_sha256(out / "params.npz")
    with replace_atomically(out / "card.json") as temporary:
        temporary.write_text(json.dumps(card, indent=2) + "\n")
    return card


def calibrated_threshold(state: TrainingState, files: ActivationFiles, plan: TrainingPlan) -> float:
    """The one threshold at which training tokens have k active features on average."""
    x = torch.from_numpy(next(files.batches(4 * plan.batch, plan.seed + 1))).float() * files.scale
    with torch.inference_mode():
        post = torch.relu((x - state.b_dec) @ state.W_enc + state.b_enc).flatten()
        smallest_kept = torch.topk(post, plan.k * len(x), sorted=False).values.min()
    return float(smallest_kept)


def finished(state: TrainingState, scale: float, threshold: float) -> SparseAutoencoder:
    """The SAE that reads raw residuals: `scale` and b_dec folded in, decoder rows still of unit norm.

    With x the raw residual and acts the raw activations, pre_scaled = scale * pre_raw, hence
    W_enc stays, b_enc = (b_enc - b_dec @ W_enc) / scale, threshold and b_dec are divided by scale.
    """
    with torch.no_grad():
        b_enc = (state.b_enc - state.b_dec @ state.W_enc) / scale
        return SparseAutoencoder(
            W_enc=state.W_enc.detach().clone(),
            b_enc=b_enc,
            threshold=torch.full_like(b_enc, threshold / scale),
            W_dec=state.W_dec.detach().clone(),
            b_dec=(state.b_dec / scale).detach(),
        )


@torch.inference_mode()
def evaluate(sae: SparseAutoencoder, held_out: Iterator[np.ndarray]) -> dict[str, float]:
    """L0, FVU, explained variance, dead and dense features on raw residuals [n, d_in] that training never saw."""
    fired = torch.zeros(sae.d_sae, dtype=torch.int64)
    total, total_sq = torch.zeros(sae.d_in, dtype=torch.float64), 0.0
    error, tokens = 0.0, 0
    for part in held_out:
        x = torch.from_numpy(part).float()
        acts = sae.encode(x)
        fired += (acts > 0).sum(0)
        error += float((x - sae.decode(acts)).double().square().sum())
        total += x.double().sum(0)
        total_sq += float(x.double().square().sum())
        tokens += len(x)
    variance = total_sq - float(total.square().sum()) / tokens
    return {
        "tokens": tokens,
        "l0": float(fired.sum()) / tokens,
        "fvu": error / variance,
        "explained_variance": 1 - error / variance,
        "dead_share": float((fired == 0).double().mean()),
        "dense_features": int((fired > DENSE * tokens).sum()),
    }


def _restore(
    checkpoint: Path, files: ActivationFiles, plan: TrainingPlan
) -> tuple[TrainingState, torch.optim.Adam]:
    state = initial_state(torch.from_numpy(files.mean).float() * files.scale, plan)
    optimizer = torch.optim.Adam(state.parameters, lr=plan.lr, betas=(0.9, 0.999), fused=True)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["plan"] == asdict(plan) and saved["data"] == files.key:
            with torch.no_grad():
                for parameter, value in zip(state.parameters, saved["parameters"], strict=True):
                    parameter.copy_(value)
            state.silent_tokens.copy_(saved["silent_tokens"])
            state.threshold, state.step = saved["threshold"], saved["step"]
            optimizer.load_state_dict(saved["optimizer"])
    return state, optimizer


def _save(
    checkpoint: Path, state: TrainingState, optimizer: torch.optim.Adam, plan: TrainingPlan, data: str
) -> None:
    values: dict[str, Any] = {
        "plan": asdict(plan),
        "data": data,
        "parameters": [parameter.detach() for parameter in state.parameters],
        "silent_tokens": state.silent_tokens,
        "threshold": state.threshold,
        "step": state.step,
        "optimizer": optimizer.state_dict(),
    }
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(checkpoint) as temporary:
        torch.save(values, temporary)
