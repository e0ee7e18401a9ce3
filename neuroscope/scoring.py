"""How likely a model finds the tokens of a prompt: the log probability of each one after those before it.

For programs that compare given texts (`echo` of a text completion). The passes are of their own, so that what is
cached of other prompts stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from neuroscope.errors import ModelError
from neuroscope.models.sampling import NOT_FINITE
from neuroscope.steps import ScoredToken, TokenLogprob

if TYPE_CHECKING:
    from neuroscope.models.backend import Backend
    from neuroscope.models.chat import Prompt
    from neuroscope.models.text import Detokenizer, TokenBytes


def score(
    backend: Backend,
    token_bytes: TokenBytes,
    prompt: Prompt,
    top: int,
    detokenizer: Detokenizer,
    should_stop: Callable[[], bool],
) -> list[ScoredToken]:
    """Every token of `prompt`, which must fit the context, with `top` alternatives; fewer when stopped.

    `detokenizer` is a fresh one. Raises ModelError for logits that are not finite.
    """
    texts = [detokenizer.step(token) for token in prompt.ids]
    texts[-1] += detokenizer.finish()
    scores = _scores(backend, token_bytes, prompt.ids, top, should_stop)
    return [
        ScoredToken(token, token_bytes(token), text, *scored)
        for token, text, scored in zip(prompt.ids, texts, scores, strict=False)
    ]


@torch.inference_mode()
def _scores(
    backend: Backend, token_bytes: TokenBytes, ids: list[int], top: int, should_stop: Callable[[], bool]
) -> Iterator[tuple[float | None, tuple[TokenLogprob, ...]]]:
    yield None, ()
    following = iter(ids[1:])
    for logits in backend.prompt_logits(ids):  # [cell, vocab]
        if should_stop():
            return
        logprobs = logits.log_softmax(-1)
        values, indices = logprobs.topk(min(top, logprobs.shape[-1]))
        for row, best, best_ids in zip(logprobs, values.tolist(), indices.tolist(), strict=True):
            token = next(following, None)
            if token is None:
                return
            if not torch.isfinite(row.max()):
                raise ModelError(NOT_FINITE)
            found = (TokenLogprob(i, token_bytes(i), v) for i, v in zip(best_ids, best, strict=True))
            yield float(row[token]), tuple(found)
