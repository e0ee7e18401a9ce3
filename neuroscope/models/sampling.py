"""Which token comes next, given the model's logits: OpenAI's sampling parameters, seeded and repeatable."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from neuroscope.errors import ModelError, SamplingError
from neuroscope.models.sampling_options import Sampling

__all__ = ["Choice", "Sampler", "Sampling"]

GREEDY_BELOW = 1e-5
"""Temperatures under this take the most likely token."""

NUCLEUS_CANDIDATES = 1024
"""`top_p` sorts this many tokens first, and the whole vocabulary only where they do not suffice."""

NOT_FINITE = (
    "The model's logits are not finite. Try dtype float32; with it, or a GGUF file, fetch the model anew."
)


class Choice(NamedTuple):
    """A sampled token, with its own and the best alternatives' log probabilities where asked for."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]


class Sampler:
    """One generation's choices: its random generator and the tokens chosen so far.

    Log probabilities are of the distribution after bias and penalties, with the temperature left out.
    """

    def __init__(self, sampling: Sampling, vocabulary: int) -> None:
        """Raises SamplingError when `logit_bias` names a token that is not among the `vocabulary` ones."""
        unknown = [token for token in sampling.logit_bias if not 0 <= token < vocabulary]
        if unknown:
            raise SamplingError(
                "logit_bias",
                f"logit_bias names token {unknown[0]}; this model's are 0 to {vocabulary - 1}.",
            )
        self._sampling = sampling
        self._random = torch.Generator()
        if sampling.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(sampling.seed % 2**63)
        self._chosen: Counter[int] = Counter()
        self._penalised = bool(sampling.presence_penalty or sampling.frequency_penalty)
        self._bias_ids = np.array(list(sampling.logit_bias), np.int64)
        self._bias = np.array(list(sampling.logit_bias.values()), np.float32)
        self._greedy = sampling.temperature < GREEDY_BELOW
        self._only_best = (
            self._greedy and not sampling.logprobs and not self._penalised and not sampling.logit_bias
        )

    def choose(self, logits: Tensor, numbers: NDArray[np.float32] | None = None) -> Choice:
        """The next token from `logits` [vocab], float32; `numbers` are the same, where they are there.

        Raises ModelError when the best of them is not a number.
        """
        if not self._only_best:
            return self._choose(logits)
        return Choice(_best(logits) if numbers is None else _best_number(numbers), None, ())

    @torch.inference_mode()
    def _choose(self, logits: Tensor) -> Choice:
        logits = self._adjusted(logits.cpu())
        best = _best(logits)
        token = best if self._greedy or self._sampling.top_p <= 0 else self._draw(logits)
        if self._penalised:
            self._chosen[token] += 1
        if not self._sampling.logprobs:
            return Choice(token, None, ())
        logprobs = logits.log_softmax(-1)
        values, indices = logprobs.topk(min(self._sampling.top_logprobs, len(logprobs)))
        top = tuple(zip(indices.tolist(), values.tolist(), strict=True))
        return Choice(token, float(logprobs[token]), top)

    def _adjusted(self, logits: Tensor) -> Tensor:
        """Bias added, and for tokens chosen before: presence once, frequency for each time."""
        if not self._penalised and not len(self._bias_ids):
            return logits
        numbers = (
            logits.numpy().copy()
        )  # torch would do it by several threads, and each step in twice the time
        if len(self._bias_ids):
            numbers[self._bias_ids] += self._bias
        if self._chosen:
            counts = np.array(list(self._chosen.values()), np.float32)
            penalty = self._sampling.presence_penalty + self._sampling.frequency_penalty * counts
            numbers[list(self._chosen)] -= penalty
        return torch.from_numpy(numbers)

    def _draw(self, logits: Tensor) -> int:
        """One token from softmax(logits / temperature), cut to the smallest set that holds `top_p`."""
        probs = torch.softmax(logits.double() / self._sampling.temperature, -1)
        ids: Tensor | None = None
        if self._sampling.top_p < 1:
            probs, ids = _nucleus(probs, self._sampling.top_p)
        cumulative = probs.cumsum(-1)
        point = torch.rand((), generator=self._random, dtype=torch.float64) * cumulative[-1]
        drawn = int(torch.searchsorted(cumulative, point, right=True).clamp_max(len(cumulative) - 1))
        return drawn if ids is None else int(ids[drawn])


def _best(logits: Tensor) -> int:
    """The most likely token. Raises ModelError when its logit is not a number; of two, a NaN is the larger."""
    if logits.device.type == "cpu":
        return _best_number(logits.numpy())  # its argmax takes a tenth of torch's
    value, index = logits.max(-1)  # two numbers leave the device, and at once
    number, token = torch.stack([value, index.to(value.dtype)]).tolist()  # float32 holds tokens up to 2^24
    if not math.isfinite(number):
        raise ModelError(NOT_FINITE)
    return int(token)


def _best_number(numbers: NDArray[np.float32]) -> int:
    token = int(numbers.argmax())
    if not math.isfinite(numbers[token]):
        raise ModelError(NOT_FINITE)
    return token


def _nucleus(probs: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The fewest most likely tokens whose probabilities reach `top_p`: (probabilities, ids)."""
    values, ids = probs.topk(min(NUCLEUS_CANDIDATES, len(probs)))
    if values.sum() < top_p:
        values, ids = probs.sort(descending=True, stable=True)
    count = int((values.cumsum(-1) < top_p).sum()) + 1
    return values[:count], ids[:count]
