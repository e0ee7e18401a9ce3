"""The `openai` package against the real server, as its users have it: sync and async, every way to ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from running import KEY, Servers
from serving import EventStream, Server, serving, wait_until

T = TypeVar("T")

MODEL = "scripted/model"
SEEDED: dict[str, Any] = {"temperature": 1, "max_tokens": 24}
FUNCTION = {"type": "function", "function": {"name": "look", "parameters": {}}}
LONG_ANSWER = "[delay=0.05] " + "w " * 100


@pytest.fixture
def client(servers: Servers) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{servers.scripted.chat_url}/v1", api_key=KEY, max_retries=0, timeout=60
    ) as made:
        yield made


@pytest.fixture
def tiny(servers: Servers) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{servers.tiny.chat_url}/v1", api_key="none", max_retries=0, timeout=60
    ) as made:
        yield made


@pytest.fixture
def stream(servers: Servers) -> Iterator[EventStream]:
    headers = {"Authorization": f"Bearer {KEY}"}
    with EventStream(servers.scripted.features_port, headers=headers) as subscriber:
        assert next(subscriber.blocks()).comment is not None
        yield subscriber


def ask(content: str) -> list[Any]:
    return [{"role": "user", "content": content}]


def asynchronously(servers: Servers, use: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
    """What `use` makes of an asynchronous client."""

    async def run() -> T:
        base_url = f"{servers.scripted.chat_url}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0) as client:
            return await use(client)

    return asyncio.run(run())


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def assert_answered(answer: ChatCompletion) -> None:
    assert answer.choices[0].message.content == "one two"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 4


def test_a_whole_answer(client: openai.OpenAI, servers: Servers) -> None:
    assert_answered(client.chat.completions.create(model=MODEL, messages=ask("one two"), seed=1))
    assert_answered(
        asynchronously(servers, lambda c: c.chat.completions.create(model=MODEL, messages=ask("one two")))
    )


def test_a_streamed_answer_with_usage_and_logprobs(client: openai.OpenAI, servers: Servers) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": ask("one two"),
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 1,
    }

    async def listen(client: openai.AsyncOpenAI) -> list[ChatCompletionChunk]:
        return [chunk async for chunk in await client.chat.completions.create(**asked)]

    for chunks in (list(client.chat.completions.create(**asked)), asynchronously(servers, listen)):
        assert text_of(chunks) == "one two"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 2
        logprobs = chunks[1].choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        assert logprobs.content[0].top_logprobs[0].bytes == list(b"one")


def test_heartbeats_in_a_long_prefill_do_not_disturb_it(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=ask("[prefill=1.2] at last"), stream=True)
    assert text_of(list(stream)).strip() == "at last"


def test_the_streaming_helper_accumulates_the_answer(client: openai.OpenAI, servers: Servers) -> None:
    usage: Any = {"include_usage": True}
    with client.chat.completions.stream(model=MODEL, messages=ask("one two"), stream_options=usage) as stream:
        events = list(stream)
        assert_answered(stream.get_final_completion())
    assert "".join(event.delta for event in events if event.type == "content.delta") == "one two"
    assert [event.content for event in events if event.type == "content.done"] == ["one two"]

    async def listen(client: openai.AsyncOpenAI) -> ChatCompletion:
        asked = client.chat.completions.stream(model=MODEL, messages=ask("one two"), stream_options=usage)
        async with asked as stream:
            return await stream.get_final_completion()

    assert_answered(asynchronously(servers, listen))


def test_raw_and_streaming_responses_carry_the_request_id(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=ask("one two"))
    assert raw.request_id is not None
    assert raw.request_id.startswith("req_")
    assert_answered(raw.parse())
    asked = client.chat.completions.with_streaming_response
    with asked.create(model=MODEL, messages=ask("one two"), stream=True) as response:
        assert response.request_id is not None
        assert list(response.iter_lines())[-2:] == ["data: [DONE]", ""]


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_text_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="one two", max_tokens=5)
    assert answer.choices[0].text == "one two"
    chunks = list(client.completions.create(model=MODEL, prompt="one two", max_tokens=5, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "one two"


def test_the_real_model_obeys_seed_stop_and_system(tiny: openai.OpenAI) -> None:
    def whole(messages: list[Any], **more: Any) -> tuple[str, int]:
        answer = tiny.chat.completions.create(model="tiny", messages=messages, **SEEDED, **more)
        assert answer.usage is not None
        return answer.choices[0].message.content or "", answer.usage.prompt_tokens

    def streamed(**more: Any) -> str:
        asked = tiny.chat.completions.create(
            model="tiny", messages=ask("hello"), stream=True, **SEEDED, **more
        )
        return text_of(list(asked))

    text, prompt_tokens = whole(ask("hello"), seed=7)
    assert text == streamed(seed=7) != whole(ask("hello"), seed=8)[0]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    cut = text[: text.index(stop)]
    assert whole(ask("hello"), seed=7, stop=stop)[0] == streamed(seed=7, stop=[stop]) == cut
    assert whole([{"role": "system", "content": "be kind"}, *ask("hello")])[1] > prompt_tokens


def test_errors_have_their_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="is not served here") as missing:
        client.chat.completions.create(model="gpt-4o", messages=ask("x"))
    assert missing.value.code == "model_not_found"
    assert missing.value.request_id is not None
    for wrong in ({"n": 2}, {"tool_choice": "required", "tools": [FUNCTION]}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model=MODEL, messages=ask("x"), **wrong)  # type: ignore[call-overload]
        assert refused.value.param == next(iter(wrong))
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model=MODEL, messages=ask("w " * 300))
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.NotFoundError, match="POST /v1/chat/completions"):
        client.responses.create(model=MODEL, input="x")


def test_a_late_failure_reaches_the_reader_of_a_stream(client: openai.OpenAI, servers: Servers) -> None:
    asked: dict[str, Any] = {"model": MODEL, "messages": ask("[fail=1] one two"), "stream": True}

    async def listen(client: openai.AsyncOpenAI) -> list[ChatCompletionChunk]:
        return [chunk async for chunk in await client.chat.completions.create(**asked)]

    for listening in (
        lambda: list(client.chat.completions.create(**asked)),
        lambda: asynchronously(servers, listen),
    ):
        with pytest.raises(openai.APIError, match="The model failed on this request"):
            listening()


def test_leaving_ends_the_generation(client: openai.OpenAI, servers: Servers, stream: EventStream) -> None:
    def leave() -> None:
        asked = client.chat.completions.create(model=MODEL, messages=ask(LONG_ANSWER), stream=True)
        with closing(asked) as chunks:
            for _ in zip(range(3), chunks, strict=False):
                pass

    async def cancel(client: openai.AsyncOpenAI, streamed: bool) -> None:
        async def listen() -> None:
            answer: Any = await client.chat.completions.create(
                model=MODEL, messages=ask(LONG_ANSWER), stream=streamed
            )
            async for _ in answer:
                pass

        task = asyncio.create_task(listen())
        await asyncio.to_thread(stream.take, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for leaving in (
        leave,
        lambda: asynchronously(servers, lambda c: cancel(c, True)),
        lambda: asynchronously(servers, lambda c: cancel(c, False)),
    ):
        leaving()
        complete = stream.until("generation_complete")[-1]
        assert complete.data["finish_reason"] == "cancelled"
        assert complete.data["total_tokens"] < 50


def asking(server: Server, answers: list[int]) -> threading.Thread:
    """A client that tries again, in a thread; `answers` gets how many retries each answer took."""

    def run() -> None:
        with openai.OpenAI(base_url=f"{server.chat_url}/v1", api_key="none", max_retries=3) as client:
            raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=ask("at last"))
            assert raw.parse().choices[0].message.content == "at last"
            answers.append(raw.retries_taken)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_client_waits_as_long_as_it_is_told_to_when_loading_and_when_full(tmp_path: Path) -> None:
    """By its own measure, which begins with half a second, it would have tried several times."""
    answers: list[int] = []
    with serving(tmp_path, env={"SCRIPTED_LOAD_SECONDS": "3"}, serve={"queue": 1}, ready=False) as server:
        wait_until(server.answers, what="a port")
        early = asking(server, answers)
        server.wait_ready()
        early.join(60)
        assert answers == [1], "503 while loading"
        with openai.OpenAI(base_url=f"{server.chat_url}/v1", api_key="none", max_retries=0) as others:
            prefill: dict[str, Any] = {"model": MODEL, "messages": ask("[prefill=300] never"), "stream": True}
            waiting = [others.chat.completions.create(**prefill) for _ in range(2)]
            wait_until(lambda: server.get("/readyz").json()["queue"]["waiting"] == 1, what="a full queue")
            with pytest.raises(openai.RateLimitError) as full:
                others.chat.completions.create(model=MODEL, messages=ask("no room"))
            assert full.value.response.headers["retry-after"] == "5"
            late = asking(server, answers)
            late.join(2)
            assert late.is_alive()
            for request in waiting:
                request.close()
        late.join(60)
        assert answers == [1, 1], "429 when full"
