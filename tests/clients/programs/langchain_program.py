"""LangChain's ChatOpenAI: invoke, stream, astream, batch."""

from __future__ import annotations

import asyncio
from typing import Any

from cases import (
    KEY,
    LATE_FAILURE,
    LONG_ANSWER,
    MODEL,
    SCRIPTED,
    SEEDED,
    TINY,
    TINY_MODEL,
    TOO_LONG,
    WORDS,
    error_of,
    middle_of,
    print_cases,
    said,
)
from langchain_openai import ChatOpenAI, OpenAI


def chat(**more: Any) -> ChatOpenAI:
    settings = {"model": MODEL, "base_url": SCRIPTED, "api_key": KEY, "max_retries": 0, "stream_usage": True}
    return ChatOpenAI(**{**settings, **more})


def tiny(**more: Any) -> ChatOpenAI:
    return chat(model=TINY_MODEL, base_url=TINY, api_key="none", **{**SEEDED, **more})


def answer(message: Any) -> dict[str, Any]:
    usage = message.usage_metadata or {}
    return {
        "text": message.content,
        "reason": message.response_metadata["finish_reason"],
        "usage": [usage[name] for name in ("input_tokens", "output_tokens", "total_tokens")],
    }


def joined(chunks: list[Any]) -> Any:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


async def astreamed() -> Any:
    return joined([chunk async for chunk in chat().astream(WORDS)])


def give_up() -> None:
    stream = chat().stream(LONG_ANSWER)
    for _ in range(4):
        next(stream)
    stream.close()


said["invoke"] = answer(chat().invoke(WORDS))
said["stream"] = answer(joined(list(chat().stream(WORDS))))
said["astream"] = answer(asyncio.run(astreamed()))
said["batch"] = [message.content for message in chat().batch(["a b", "c d", "e f"])]
said["limited"] = answer(chat(max_tokens=2).invoke(WORDS))
said["logprobs"] = chat(logprobs=True, top_logprobs=1).invoke(WORDS).response_metadata["logprobs"]["content"]
said["text completion"] = OpenAI(
    model=MODEL, base_url=SCRIPTED, api_key=KEY, max_retries=0, max_tokens=20
).invoke(WORDS)
said["wrong key"] = error_of(lambda: chat(api_key="wrong").invoke(WORDS))
said["wrong model"] = error_of(lambda: chat(model="gpt-4o").invoke(WORDS))
said["too long"] = error_of(lambda: chat().invoke(TOO_LONG))
said["too many"] = error_of(lambda: chat(n=2).invoke(WORDS))
said["late failure"] = error_of(lambda: list(chat().stream(LATE_FAILURE)))


def look(place: str) -> str:
    """Look at a place."""
    return place


said["tools"] = error_of(lambda: chat().bind_tools([look], tool_choice="any").invoke(WORDS))
said["structured"] = error_of(
    lambda: chat().with_structured_output({"title": "T", "type": "object", "properties": {}}).invoke(WORDS)
)
give_up()

whole = tiny(seed=7).invoke("hello").content
said["seeds"] = [
    whole,
    joined(list(tiny(seed=7).stream("hello"))).content,
    tiny(seed=8).invoke("hello").content,
]
stop = [middle_of(whole)]
said["stopped"] = [
    whole,
    stop[0],
    tiny(seed=7, stop=stop).invoke("hello").content,
    joined(list(tiny(seed=7, stop=stop).stream("hello"))).content,
]
said["systems"] = [
    tiny().invoke(messages).usage_metadata["input_tokens"]
    for messages in ([("human", "hello")], [("system", "be kind"), ("human", "hello")])
]
print_cases()
