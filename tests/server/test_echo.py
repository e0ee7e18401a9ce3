"""Text completions for programs that compare texts, as lm-eval does: token ids as prompts, `echo`, `logprobs`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from asking import ask, in_both_modes, read_stream
from fakes.tiny import CONTEXT
from serving import Server

TEXT = "the user said hé 👋 and more"
PATH = "/v1/completions"


def ids_of(tiny_gemma: tuple[Any, Any], text: str = TEXT) -> list[int]:
    return list(tiny_gemma[1].encode(text))


def logprobs_of(tiny_gemma: tuple[Any, Any], ids: list[int]) -> np.ndarray[Any, Any]:
    """[position, vocab] of one pass over all of them without a cache."""
    import torch

    with torch.inference_mode():
        logits = tiny_gemma[0](input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        return np.asarray(logits.float().log_softmax(-1).numpy())


def completed(server: Server, prompt: Any, **more: Any) -> dict[str, Any]:
    """The only choice of the whole answer."""
    response = ask(server, {"prompt": prompt, "temperature": 0, **more}, PATH)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return dict(choice)


def test_token_ids_are_the_prompt_as_it_is(saying: Server, tiny_gemma: tuple[Any, Any]) -> None:
    """With its BOS: none is added, so that the text and its ids are one prompt."""
    ids = ids_of(tiny_gemma)
    body = {"max_tokens": 8, "temperature": 0}
    by_text = in_both_modes(saying, {"prompt": TEXT, **body}, PATH)
    for prompt in (ids, [ids], [float(token) for token in ids]):  # 5.0 is a whole number in JSON
        assert in_both_modes(saying, {"prompt": prompt, **body}, PATH) == by_text
    assert by_text.usage["prompt_tokens"] == len(ids)
    without = in_both_modes(saying, {"prompt": ids[1:], **body}, PATH)
    assert without.usage["prompt_tokens"] == len(ids) - 1


@pytest.mark.parametrize("max_tokens", [0, 1, 4])
def test_an_echoed_prompt_has_the_log_probabilities_of_one_whole_pass(
    saying: Server, tiny_gemma: tuple[Any, Any], max_tokens: int
) -> None:
    ids = ids_of(tiny_gemma) * 8  # more than one cell of the prompt
    expected = logprobs_of(tiny_gemma, ids)
    choice = completed(saying, [ids], echo=True, logprobs=2, max_tokens=max_tokens)
    found = choice["logprobs"]
    assert {len(values) for values in found.values()} == {len(ids) + max_tokens}
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    own = [expected[i, token] for i, token in enumerate(ids[1:])]
    np.testing.assert_allclose(found["token_logprobs"][1 : len(ids)], own, atol=1e-3)
    for best, row in zip(found["top_logprobs"][1 : len(ids)], expected, strict=False):
        assert len(best) <= 3
        likeliest = sorted(best.values())[-2:]
        np.testing.assert_allclose(likeliest, np.sort(row)[-len(likeliest) :], atol=1e-3)
    assert choice["finish_reason"] == "length"
    assert choice["text"].startswith(("<bos>" + TEXT) * 8)


@pytest.mark.parametrize("top", [0, 1])
def test_a_token_is_among_its_own_alternatives_however_few_are_asked_for(saying: Server, top: int) -> None:
    """As OpenAI documents it: one more than asked for where the token is not one of the likeliest."""
    choice = completed(saying, "Unlikely, this: say[ab]end", echo=True, logprobs=top, max_tokens=2)
    found = choice["logprobs"]
    assert found["tokens"][-2:] == ["a", "b"]
    rows = list(zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True))[1:]
    assert all(best[token] == own for token, own, best in rows)
    assert {len(best) for _, _, best in rows} == ({1} if top == 0 else {1, 2})


def test_an_echo_is_what_was_asked_and_what_was_answered(saying: Server) -> None:
    answer = in_both_modes(saying, {"prompt": "say[ hé]end", "max_tokens": 20, "echo": True}, PATH)
    assert answer.text == "say[ hé]end hé"
    assert answer.pieces[0] == "say[ hé]end"
    nothing = in_both_modes(saying, {"prompt": "", "max_tokens": 0, "echo": True, "logprobs": 1}, PATH)
    assert (nothing.text, nothing.usage["prompt_tokens"]) == ("", 1)
    alone = in_both_modes(saying, {"prompt": TEXT, "max_tokens": 0, "echo": True}, PATH)
    assert (alone.text, alone.reason) == (TEXT, "length")
    assert alone.usage["completion_tokens"] == 0


def test_offsets_point_into_the_whole_text_in_both_modes(saying: Server, tiny_gemma: tuple[Any, Any]) -> None:
    body = {"prompt": "say[one, two]end", "max_tokens": 20, "echo": True, "logprobs": 1}
    choice = completed(saying, **body)
    logprobs = choice["logprobs"]
    (bos, *tokens), (none, *offsets) = logprobs["tokens"], logprobs["text_offset"]
    assert (bos, none) == ("<bos>", 0), "put before the text, no part of it"
    assert all(choice["text"][at:].startswith(token) for token, at in zip(tokens, offsets, strict=True))
    by_ids = completed(saying, ids_of(tiny_gemma), echo=True, logprobs=0, max_tokens=0)
    assert by_ids["text"] == f"<bos>{TEXT}"
    assert by_ids["logprobs"]["text_offset"][:2] == [0, len("<bos>")]
    response = ask(
        saying, {**body, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}, PATH
    )
    assert read_stream(response).text == choice["text"]
    chunks = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"]]
    for name, values in logprobs.items():
        assert [value for part in parts if part for value in part[name]] == values


def test_ids_that_the_model_cannot_read_are_refused(saying: Server, tiny_gemma: tuple[Any, Any]) -> None:
    vocabulary = len(tiny_gemma[1])
    for prompt, words in [
        ([vocabulary], f"prompt holds token {vocabulary}; this model's are 0 to {vocabulary - 1}"),
        ([-1], "prompt holds token -1"),
        ([5] * (CONTEXT + 1), f"context length is {CONTEXT} tokens and 'prompt' has {CONTEXT + 1}"),
    ]:
        for more in ({}, {"echo": True, "logprobs": 1, "max_tokens": 0}):
            response = ask(saying, {"prompt": prompt, **more}, PATH)
            assert response.status_code == 400
            assert words in response.json()["error"]["message"]
            assert response.json()["error"]["param"] == "prompt"


def test_parts_of_a_character_are_told_apart(saying: Server) -> None:
    """By their bytes, since all of them would be U+FFFD."""
    choice = completed(saying, "say[👋]end", max_tokens=20, logprobs=20)
    assert choice["logprobs"]["tokens"] == [f"bytes:\\x{byte:02x}" for byte in "👋".encode()]
    for own, top in zip(
        choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"], strict=True
    ):
        assert "\ufffd" not in "".join(top)
        assert own == max(top.values())
        assert (
            len(top) >= 19
        )  # two of the twenty may be ids without a text, which the vocabulary is padded with


def test_what_lm_eval_asks_is_answered(saying: Server, tiny_gemma: tuple[Any, Any]) -> None:
    """A context and its continuation as ids, one token that is not used: it reads the part that is the continuation."""
    context, continuation = ids_of(tiny_gemma), ids_of(tiny_gemma, " the same thing")[1:]
    ids = context + continuation
    asked = {"model": "tiny", "logprobs": 1, "echo": True, "max_tokens": 1, "temperature": 0, "seed": 1234}
    choice = completed(saying, [ids], **asked)
    tokens = choice["logprobs"]["token_logprobs"][len(context) : -1]
    expected = logprobs_of(tiny_gemma, ids)
    at = range(len(context) - 1, len(ids) - 1)
    assert sum(tokens) == pytest.approx(sum(expected[i, ids[i + 1]] for i in at), abs=1e-2)
    greedy = [expected[i].argmax() == ids[i + 1] for i in at]
    best = [max(top.values()) for top in choice["logprobs"]["top_logprobs"][len(context) : -1]]
    assert [own == found for own, found in zip(tokens, best, strict=True)] == greedy
