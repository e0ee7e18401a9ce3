"""LiteLLM with its `openai/` provider: completion, acompletion, text_completion, as aider and others use it."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
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
    TOOL,
    WORDS,
    error_of,
    middle_of,
    print_cases,
    said,
    user,
)

litellm.telemetry = False
litellm.suppress_debug_info = True
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def settings(content: str, **more: Any) -> dict[str, Any]:
    common = {"model": f"openai/{MODEL}", "api_base": SCRIPTED, "api_key": KEY, "max_retries": 0}
    return {**common, "messages": user(content), **more}


def ask(content: str, **more: Any) -> Any:
    return litellm.completion(**settings(content, **more))


def tiny(**more: Any) -> Any:
    asked = {"model": f"openai/{TINY_MODEL}", "api_base": TINY, "api_key": "none", **SEEDED, **more}
    return ask("hello", **asked)


def usage_of(usage: Any) -> list[int]:
    return [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]


def answer(response: Any) -> dict[str, Any]:
    choice = response.choices[0]
    return {
        "text": choice.message.content,
        "reason": choice.finish_reason,
        "usage": usage_of(response.usage),
    }


def answer_of(chunks: list[Any]) -> dict[str, Any]:
    return {
        "text": text_of(chunks),
        "reason": next(
            c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason
        ),
        "usage": usage_of(next(c.usage for c in reversed(chunks) if getattr(c, "usage", None))),
    }


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def astreamed() -> dict[str, Any]:
    stream = await litellm.acompletion(**settings(WORDS, **STREAMED))
    return answer_of([chunk async for chunk in stream])


def give_up() -> None:
    stream = ask(LONG_ANSWER, stream=True)
    for _ in range(4):
        next(stream)
    stream.completion_stream.close()


said["whole"] = answer(ask(WORDS))
said["streamed"] = answer_of(list(ask(WORDS, **STREAMED)))
said["awhole"] = answer(asyncio.run(litellm.acompletion(**settings(WORDS))))
said["astreamed"] = asyncio.run(astreamed())
said["limited"] = answer(ask(WORDS, max_tokens=2))
logprobs = ask(WORDS, logprobs=True, top_logprobs=1).choices[0].logprobs
said["logprobs"] = [entry.bytes for entry in logprobs.content]
completion = litellm.text_completion(
    model=f"text-completion-openai/{MODEL}", prompt=WORDS, api_base=SCRIPTED, api_key=KEY, max_tokens=9
)
said["text completion"] = [completion.choices[0].text, usage_of(completion.usage)]
said["wrong key"] = error_of(lambda: ask(WORDS, api_key="wrong"))
said["wrong model"] = error_of(lambda: ask(WORDS, model="openai/gpt-4o"))
said["too long"] = error_of(lambda: ask(TOO_LONG))
said["too many"] = error_of(lambda: ask(WORDS, n=2))
said["tools"] = error_of(lambda: ask(WORDS, tools=[TOOL], tool_choice="required"))
said["late failure"] = error_of(lambda: list(ask(LATE_FAILURE, stream=True)))
give_up()

whole = tiny(seed=7).choices[0].message.content
said["seeds"] = [
    whole,
    text_of(list(tiny(seed=7, stream=True))),
    tiny(seed=8).choices[0].message.content,
]
stop = middle_of(whole)
said["stopped"] = [
    whole,
    stop,
    tiny(seed=7, stop=[stop]).choices[0].message.content,
    text_of(list(tiny(seed=7, stop=stop, stream=True))),
]
system = [{"role": "system", "content": "be kind"}]
said["systems"] = [tiny(messages=start + user("hello")).usage.prompt_tokens for start in ([], system)]
print_cases()
