"""Our activations on Neuronpedia's examples: the same tokens through the loaded model, hook and SAE, against theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroscope.verification import Check, Verdict
from neuroscope.verify.subject import Subject
from neuroscope.verify.token_strings import TokenStrings

NAME = "neuronpedia"
TOLERANCE = 0.05
"""Relative. Rounding to bfloat16, grown over the layers, moves a strong activation by a percent or two."""
MOST = 0.5
"""Share of the examples that must agree: single ones may be of an older tokenizer or sit at the threshold."""
COMPARED = 64
"""Examples that are run, each of another feature."""
FEWEST = 5
"""Under this many say nothing."""
OFFSETS = (-1, 0, 1)
"""Positions beside the peak that are looked at, to tell a wrong position from a wrong SAE."""


@dataclass(frozen=True, slots=True)
class Example:
    """One example in our tokens."""

    feature: int
    ids: list[int]
    peak: int
    """Position of the largest activation in `ids`."""
    activation: float
    """Neuronpedia's, there."""


@dataclass(frozen=True, slots=True)
class Published:
    """Neuronpedia's examples of a pairing's SAE, and the model that they were made with."""

    examples: pl.DataFrame
    """As `neuronpedia.activations` keeps them."""
    model: str
    same_model: bool
    """False where Neuronpedia ran another model, such as the base model of a chat model: differences are no fault."""


def published(subject: Subject, of: Published) -> Check:
    """The share of examples on which our activation at their peak is theirs."""
    examples, left_out = in_our_tokens(subject, of.examples)
    limit = f">= {MOST:.0%} within {TOLERANCE:.0%}"
    if len(examples) < FEWEST:
        why = f"Of Neuronpedia's examples {len(examples)} have our tokens one to one, {left_out} do not: too few."
        return Check(NAME, "skipped", None, limit, why)
    ours = activations(subject, examples)  # [n, offsets]
    theirs = np.array([example.activation for example in examples])
    difference = np.abs(ours[:, OFFSETS.index(0)] / theirs - 1)
    share = float((difference <= TOLERANCE).mean())
    what = (
        f"Our activations on {len(examples)} of Neuronpedia's examples against theirs: relative difference "
        f"{np.median(difference):.2g} in the median, {difference.max():.2g} at most; {left_out} left out, whose tokens "
        "are not ours one to one."
    )
    verdict: Verdict = "ok" if share >= MOST else "off"
    if verdict == "off":
        what += f" {cause(ours, theirs)}"
    if not of.same_model:
        verdict, what = "skipped", f"{what} Theirs are of {of.model}, another model: not judged."
    return Check(NAME, verdict, share, limit, what)


def in_our_tokens(subject: Subject, frame: pl.DataFrame) -> tuple[list[Example], int]:
    """At most COMPARED examples of different features, and how many were left out on the way."""
    strings, bos_id = TokenStrings(subject.chat), subject.chat.bos_id
    rows = frame.filter(pl.col("rank") == 0).sort("feature")
    found: list[Example] = []
    left_out = 0
    for row in np.random.default_rng(0).permutation(len(rows)).tolist():
        if len(found) == COMPARED:
            break
        feature, activation, peak, tokens = rows.select("feature", "activation", "peak", "tokens").row(row)
        has_bos = bos_id is not None and tokens[0] == subject.chat.tokenizer.bos_token
        ids = strings.ids(tokens[has_bos:])
        if ids is None:
            left_out += 1
            continue
        if bos_id is not None and (has_bos or subject.bos):
            ids, peak = [bos_id, *ids], peak + (not has_bos)
        if len(ids) > subject.backend.context_length:
            left_out += 1
            continue
        found.append(Example(feature, ids, peak, activation))
    return found, left_out


def activations(subject: Subject, examples: Sequence[Example]) -> NDArray[np.float64]:
    """Of each example's feature at its peak and beside it, [n, offsets]; NaN beyond the text's ends."""
    found = np.full((len(examples), len(OFFSETS)), np.nan)
    start = 0
    for batch, residual in _residuals(subject, examples):
        for row, example in enumerate(batch):
            for column, offset in enumerate(OFFSETS):
                position = example.peak + offset
                if 0 <= position < len(example.ids):
                    acts = subject.sae.encode(residual[row, position].to(subject.sae.device))
                    found[start + row, column] = float(acts[example.feature])
        start += len(batch)
    return found


@torch.inference_mode()
def _residuals(subject: Subject, examples: Sequence[Example]) -> Iterator[tuple[Sequence[Example], Tensor]]:
    for start in range(0, len(examples), subject.batch):
        batch = examples[start : start + subject.batch]
        longest = max(len(example.ids) for example in batch)
        ids = torch.tensor([example.ids + [0] * (longest - len(example.ids)) for example in batch])
        mask = torch.tensor([[i < len(example.ids) for i in range(longest)] for example in batch])
        yield batch, subject.backend.residuals(ids, mask)


def cause(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> str:
    """What usually makes most examples differ in this way."""
    for column, offset in enumerate(OFFSETS):
        if offset and _share(ours[:, column] / theirs) >= MOST:
            side = "after" if offset > 0 else "before"
            return f"They agree one token {side} the peak: usually a BOS too many or missing, or a shifted position."
    ratio = ours[:, OFFSETS.index(0)] / theirs
    scale = float(np.median(ratio[ratio > 0])) if (ratio > 0).any() else 0.0
    if scale > 0 and _share(ratio / scale) >= MOST:
        return f"Ours are {scale:.3g} times theirs: usually a wrong input norm, or a scale that weights have folded in."
    return "Usually an SAE of another layer, width or model than neuronpedia.sae_id names: check both in the pairing."


def _share(ratio: NDArray[np.float64]) -> float:
    """Share of ratios that are 1 within the tolerance; one that is not known is not."""
    return float((np.abs(ratio - 1) <= TOLERANCE).mean())
