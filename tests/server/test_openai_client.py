"""The `openai` package against the real server, as its users have it."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from serving import EventStream, Server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.chat_url}/v1", api_key="none", max_retries=0, timeout=30) as made:
        yield made


def ask(content: str) -> list[openai.types.chat.ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": content}]


def test_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="scripted/model", messages=ask("one two"), seed=1)
    assert answer.choices[0].message.content == "one two"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 4


def test_a_streamed_answer_with_usage_and_logprobs(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scripted/model",
        messages=ask("one two"),
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=1,
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(delta or "" for delta in deltas) == "one two"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2
    logprobs = chunks[1].choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert logprobs.content[0].top_logprobs[0].bytes == list(b"one")


def test_heartbeats_in_a_long_prefill_do_not_disturb_it(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scripted/model", messages=ask("[prefill=1.2] at last"), stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text.strip() == "at last"


def test_the_streaming_helper_accumulates_the_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="scripted/model", messages=ask("one two")) as stream:
        assert stream.get_final_completion().choices[0].message.content == "one two"


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted/model"]
    assert client.models.retrieve("scripted/model").id == "scripted/model"


def test_text_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scripted/model", prompt="one two", max_tokens=5)
    assert answer.choices[0].text == "one two"


def test_errors_have_their_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="is not served here") as missing:
        client.chat.completions.create(model="gpt-4o", messages=ask("x"))
    assert missing.value.code == "model_not_found"
    assert missing.value.request_id is not None
    with pytest.raises(openai.BadRequestError, match="'n' must be 1") as wrong:
        client.chat.completions.create(model="scripted/model", messages=ask("x"), n=2)
    assert wrong.value.param == "n"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="scripted/model", messages=ask("w " * 300))
    assert long.value.code == "context_length_exceeded"


def test_a_late_failure_reaches_the_reader_of_a_stream(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="scripted/model", messages=ask("[fail=1] one two"), stream=True
    )
    with pytest.raises(openai.APIError, match="The model failed on this request"):
        list(stream)


def test_closing_a_stream_early_ends_the_generation(
    client: openai.OpenAI, server: Server, stream: EventStream
) -> None:
    for _ in range(3):
        chunks = client.chat.completions.create(
            model="scripted/model", messages=ask("[delay=0.05] " + "w " * 100), stream=True
        )
        for count, _chunk in enumerate(chunks):
            if count == 3:
                break
        chunks.close()
        complete = stream.until("generation_complete")[-1]
        assert complete.data["finish_reason"] == "cancelled"
        assert complete.data["total_tokens"] < 30
