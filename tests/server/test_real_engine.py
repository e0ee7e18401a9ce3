"""The whole server around a real, tiny, random model: `gunicorn neuroscope.wsgi` as it is shipped."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.tiny import CONTEXT, D_SAE, TINY_LAYER
from serving import (
    Event,
    EventStream,
    Server,
    free_ports,
    http,
    launch,
    serving,
    wait_until,
    write_config,
)
from tiny_pairing import ALWAYS_ON, fingerprint, pairing, write_results

from neuroscope.engine import Engine

SEEDED = {"seed": 7, "temperature": 1, "max_tokens": 24}


@pytest.fixture(scope="module")
def tiny(
    tmp_path_factory: pytest.TempPathFactory, tiny_gemma_path: Path, tiny_sae_path: Path
) -> Iterator[Server]:
    """A server of the tiny Gemma 2 with fitting results."""
    folder = tmp_path_factory.mktemp("tiny")
    made_of = pairing(tiny_gemma_path, tiny_sae_path)
    config = write_config(folder, pairing=made_of)
    write_results(folder / "results/tiny", fingerprint(config))
    with serving(folder, app="neuroscope.wsgi", pairing=made_of, device="cpu") as running:
        yield running


def streamed(server: Server, content: str, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    """The text of a streamed answer and its chunks."""
    lines = server.chat(content, stream=True, **more).text.split("\n\n")
    assert lines[-2] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    deltas = [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta or "" for delta in deltas), chunks


def events_of(server: Server, query: str, content: str, **more: Any) -> tuple[dict[str, Any], list[Event]]:
    """An answer and its events as a subscriber with that query sees them."""
    with EventStream(server.features_port, f"/v1/features/stream{query}") as subscriber:
        next(subscriber.blocks())
        answer = server.chat(content, **more).json()
        return answer, subscriber.until("generation_complete")


def test_it_says_what_it_has_loaded(tiny: Server) -> None:
    ready = tiny.get("/readyz").json()
    assert ready["status"] == "ready"
    assert ready["degraded"] == []
    assert ready["model"] == "tiny"
    assert ready["dtype"] == "float32"
    assert ready["decoding"].startswith("lean, ")
    assert ready["context_length"] == CONTEXT
    assert ready["sae"]["layer"] == TINY_LAYER
    assert ready["sae"]["width"] == D_SAE
    assert ready["stats"] == {"source": "measured", "tokens": 1000}
    assert ready["labels"] == {"count": D_SAE // 2, "sources": {"tokens": D_SAE // 2}}
    assert "labels    32 from tokens" in tiny.output


def test_a_seed_gives_the_same_text_and_usage_in_both_modes(tiny: Server) -> None:
    first = tiny.chat("hello", **SEEDED).json()
    for _ in range(2):
        again = tiny.chat("hello", **SEEDED).json()
        assert again["choices"] == first["choices"]
        assert again["usage"] == first["usage"], "also when the prompt was cached"
        text, chunks = streamed(tiny, "hello", stream_options={"include_usage": True}, **SEEDED)
        assert text == first["choices"][0]["message"]["content"]
        assert chunks[-1]["usage"] == first["usage"]
    assert tiny.chat("hello", **{**SEEDED, "seed": 8}).json()["choices"] != first["choices"]


def test_every_token_has_its_event_and_the_tokens_are_the_answer(tiny: Server) -> None:
    for seed in range(3):
        answer, events = events_of(tiny, "", "hello", **{**SEEDED, "seed": seed})
        *activations, complete = events
        assert [event.data["token_index"] for event in activations] == list(range(len(activations)))
        assert "".join(e.data["token"] for e in activations) == answer["choices"][0]["message"]["content"]
        assert complete.data["total_tokens"] == answer["usage"]["completion_tokens"]
        assert activations[0].data["position"] == answer["usage"]["prompt_tokens"]
        assert {e.data["completion_id"] for e in events} == {answer["id"]}


def test_a_talk_that_another_interrupts_runs_only_what_is_new(tiny: Server) -> None:
    """As when Open WebUI asks for a title between two turns; `cached_tokens` says what did not run again."""
    talk: list[dict[str, Any]] = [{"role": "user", "content": "the user said hello " * 24}]

    def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
        body = {"messages": messages, **SEEDED, "max_tokens": 8}
        whole: dict[str, Any] = http.post(f"{tiny.chat_url}/v1/chat/completions", json=body).json()
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        lines = http.post(f"{tiny.chat_url}/v1/chat/completions", json=body).text.split("\n\n")
        usage = json.loads(lines[-3].removeprefix("data: "))["usage"]
        totals = {"prompt_tokens", "completion_tokens", "total_tokens"}
        assert {name: usage[name] for name in totals} == {name: whole["usage"][name] for name in totals}
        grid = (usage["prompt_tokens"] - 1) // 64 * 64
        assert usage["prompt_tokens_details"] == {"cached_tokens": grid}, "the same prompt just ran"
        return whole

    first = ask(talk)
    length = first["usage"]["prompt_tokens"]
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert length > 64
    ask([{"role": "user", "content": "a title for this talk, please: " + "goodbye " * 40}])
    talk += [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "and the model"}]
    assert ask(talk)["usage"]["prompt_tokens_details"]["cached_tokens"] == length // 64 * 64


def test_a_prompts_features_are_those_of_the_text_it_is(tiny: Server, tiny_engine: Engine) -> None:
    """Both times: run, and taken from what was kept. `encode` on an engine of its own is the oracle."""
    content = "a prompt of its own " * 20
    prompt = tiny_engine.prepare([{"role": "user", "content": content}])
    expected = tiny_engine.encode(prompt)
    own = {"neuroscope": {"prompt_features": True}, "max_tokens": 2}
    plain, _ = events_of(tiny, "", content, **SEEDED)
    for _ in range(2):
        answer, events = events_of(tiny, f"?filter=none&top_k={D_SAE}", content, **{**SEEDED, **own})
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
        cells = [event.data["tokens"] for event in events if event.name == "prompt_activation"]
        assert [event.name for event in events[: len(cells)]] == ["prompt_activation"] * len(cells)
        tokens = [token for cell in cells for token in cell]
        assert [token["token_id"] for token in tokens] == prompt.ids
        assert [token["content"] for token in tokens] == prompt.content
        rendered = tiny_engine.chat.tokenizer.decode(prompt.ids)
        assert "".join(token["token"] for token in tokens) == rendered
        for token, encoded in zip(tokens, expected, strict=True):
            shown = {f["index"]: f["activation"] for f in token["top_features"]}
            assert sorted(shown) == encoded.acts.indices.tolist()
            np.testing.assert_allclose(
                [shown[i] for i in encoded.acts.indices], encoded.acts.values, rtol=1e-4
            )
            assert token["l0"] == len(encoded.acts.indices)
            assert token["fvu"] == pytest.approx(encoded.fvu, rel=1e-3)
        text = answer["choices"][0]["message"]["content"]
        assert plain["choices"][0]["message"]["content"].startswith(text)


def test_a_stop_string_is_cut_alike_in_both_modes_and_in_the_events(tiny: Server) -> None:
    whole = tiny.chat("hello", **SEEDED).json()["choices"][0]["message"]["content"]
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    answer, events = events_of(tiny, "", "hello", stop=stop, **SEEDED)
    content = answer["choices"][0]["message"]["content"]
    assert content == whole[: whole.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert streamed(tiny, "hello", stop=[stop], **SEEDED)[0] == content
    assert "".join(event.data["token"] for event in events[:-1]) == content


def test_events_are_those_of_one_pass_over_the_whole_text(tiny: Server, tiny_engine: Engine) -> None:
    """The oracle: prompt and answer in one forward pass without a cache; feature for feature, position for position."""
    prompt = tiny_engine.prepare([{"role": "user", "content": "hello there"}])
    _, events = events_of(tiny, f"?filter=none&top_k={D_SAE}", "hello there", **SEEDED)
    _, before = events_of(tiny, f"?filter=none&top_k={D_SAE}&align=producer", "hello there", **SEEDED)
    generated = [event.data["token_id"] for event in events[:-1]]
    encoded = tiny_engine.encode(
        type(prompt)([*prompt.ids, *generated], [*prompt.content, *[True] * len(generated)])
    )
    for event, producer in zip(events[:-1], before[:-1], strict=True):
        position = event.data["position"]
        for seen, at in ((event, position), (producer, position - 1)):
            expected = dict(
                zip(encoded[at].acts.indices.tolist(), encoded[at].acts.values.tolist(), strict=True)
            )
            found = {f["index"]: f["activation"] for f in seen.data["top_features"]}
            assert set(found) ^ set(expected) <= {
                i for i, v in (expected | found).items() if abs(v - 2) < 1e-3
            }
            both = sorted(set(found) & set(expected))
            np.testing.assert_allclose([found[i] for i in both], [expected[i] for i in both], rtol=1e-3)
        assert event.data["fvu"] == pytest.approx(encoded[position].fvu, rel=1e-2)


def test_the_filter_hides_what_the_statistics_call_frequent(tiny: Server) -> None:
    _, plain = events_of(tiny, f"?filter=none&top_k={D_SAE}", "hello", **SEEDED)
    _, filtered = events_of(tiny, f"?top_k={D_SAE}", "hello", **SEEDED)
    for shown, kept in zip(plain[:-1], filtered[:-1], strict=True):
        everything = [f["index"] for f in shown.data["top_features"]]
        assert [f["index"] for f in kept.data["top_features"]] == [i for i in everything if i != ALWAYS_ON]
        assert kept.data["filtered_count"] == everything.count(ALWAYS_ON)
        for feature in shown.data["top_features"]:
            assert feature["surprise"] == pytest.approx(feature["activation"] - 2, rel=1e-3, abs=1e-3)
            even = feature["index"] % 2 == 0
            assert feature["label"] == (
                f"label of {feature['index']}" if even else f"feature_{feature['index']}"
            )


def test_logprobs_are_those_of_a_distribution(tiny: Server) -> None:
    choice = tiny.chat("hello", logprobs=True, top_logprobs=20, **SEEDED).json()["choices"][0]
    entries = choice["logprobs"]["content"]
    assert (
        b"".join(bytes(e["bytes"]) for e in entries).decode("utf-8", "replace")
        == choice["message"]["content"]
    )
    for entry in entries:
        top = [t["logprob"] for t in entry["top_logprobs"]]
        assert top == sorted(top, reverse=True)
        assert sum(np.exp(top)) <= 1 + 1e-6
        assert entry["logprob"] <= top[0] + 1e-6


def test_a_bias_and_greedy_sampling_decide_the_token(tiny: Server) -> None:
    answer, events = events_of(tiny, "", "hello", logit_bias={"70": 100}, temperature=0, max_tokens=3)
    assert [event.data["token_id"] for event in events[:-1]] == [70] * 3
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_token_that_does_not_exist_cannot_be_biased(tiny: Server) -> None:
    refused = tiny.chat("hello", logit_bias={"9999": 1})
    assert refused.status_code == 400
    assert "9999" in refused.json()["error"]["message"]


def test_conversations_of_every_shape_are_answered_or_refused(tiny: Server) -> None:
    user = {"role": "user", "content": "hello"}
    for messages in (
        [{"role": "system", "content": "be kind"}, user],
        [{"role": "system", "content": "only this"}],
        [{"role": "developer", "content": ""}, user],
        [user, user],
        [user, {"role": "system", "content": "late"}, user],
        [user, {"role": "assistant", "content": "hi"}, user],
        [{"role": "user", "content": "<eos><start_of_turn>model\n<bos>"}],
        [{"role": "user", "content": "\x00\u202e👩‍👩‍👧"}],
    ):
        body = {"messages": messages, "max_tokens": 3}
        answer = http.post(f"{tiny.chat_url}/v1/chat/completions", json=body)
        assert answer.status_code == 200, (messages, answer.text)


def test_what_the_models_template_refuses_is_the_clients_to_change(tiny: Server) -> None:
    body = {"messages": [{"role": "assistant", "content": "first"}, {"role": "user", "content": "hello"}]}
    refused = http.post(f"{tiny.chat_url}/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_prompt"
    assert "must alternate" in refused.json()["error"]["message"]


def test_the_context_is_filled_and_not_exceeded(tiny: Server) -> None:
    scaffold = tiny.chat("é", max_tokens=1).json()["usage"]["prompt_tokens"] - 2  # a byte a token
    content = "é" * ((CONTEXT - scaffold) // 2 - 2)
    full = tiny.chat(content, logit_bias={"70": 100}, temperature=0).json()
    assert full["usage"]["total_tokens"] == CONTEXT
    assert full["choices"][0]["finish_reason"] == "length"
    too_long = tiny.chat("é" * CONTEXT)
    assert too_long.status_code == 400
    assert too_long.json()["error"]["code"] == "context_length_exceeded"


def test_raw_prompts_are_completed(tiny: Server) -> None:
    body = {"prompt": "the user said", "max_tokens": 5, "seed": 1}
    answer = http.post(f"{tiny.chat_url}/v1/completions", json=body).json()
    assert answer["usage"]["completion_tokens"] <= 5
    assert isinstance(answer["choices"][0]["text"], str)


def test_a_given_text_is_encoded_without_generating(tiny: Server, tiny_engine: Engine) -> None:
    url = f"{tiny.features_url}/v1/features/encode?filter=none&top_k={D_SAE}"
    encoded_before, sae_runs, _ = measured(tiny)
    total = 0
    text_ids = tiny_engine.chat.encode_text("the user said hé", bos=False).ids
    assert tiny_engine.chat.bos_id is not None
    for body, prompt in [
        ({"token_ids": text_ids}, tiny_engine.chat.encode_text("the user said hé")),
        ({"text": "the user said hé"}, tiny_engine.chat.encode_text("the user said hé")),
        (
            {"messages": [{"role": "user", "content": "hello"}]},
            tiny_engine.chat.render([{"role": "user", "content": "hello"}], generation=False),
        ),
    ]:
        tokens = http.post(url, json=body).json()["tokens"]
        expected = tiny_engine.encode(prompt)
        assert [token["token_id"] for token in tokens] == prompt.ids
        assert [token["content"] for token in tokens] == prompt.content
        assert [token["l0"] for token in tokens] == [len(token.acts.indices) for token in expected]
        for token, encoded in zip(tokens, expected, strict=True):
            shown = {f["index"]: f["activation"] for f in token["top_features"]}
            np.testing.assert_allclose(
                [shown[i] for i in encoded.acts.indices], encoded.acts.values, rtol=1e-4
            )
        total += len(tokens)
    encoded_after, sae_runs_after, sae_seconds = measured(tiny)
    assert encoded_after - encoded_before == total
    assert sae_runs_after > sae_runs
    assert sae_seconds > 0


def measured(server: Server) -> list[float]:
    """Tokens encoded, runs of the SAE and its seconds, by /metrics."""
    text = server.get("/metrics").text
    names = ("encoded_tokens_total", "sae_seconds_count", "sae_seconds_sum")
    return [float(re.findall(rf"^neuroscope_{name} (\S+)$", text, re.MULTILINE)[0]) for name in names]


LONG = "é" * CONTEXT


@pytest.mark.parametrize(
    ("body", "param", "code", "words"),
    [
        ({}, "text", "invalid_value", "either 'text' or 'messages'"),
        ({"text": "a", "messages": []}, "text", "invalid_value", "either 'text' or 'messages'"),
        ({"text": 5}, "text", "invalid_value", "'text' is 5; it must be a string"),
        ({"messages": "a"}, "messages", "invalid_prompt", "messages is 'a'"),
        (
            {"token_ids": [1, 10**9]},
            "token_ids",
            "invalid_prompt",
            "holds token 1000000000; this model's are 0",
        ),
        ({"token_ids": [1] * 1025}, "token_ids", "context_length_exceeded", "and 'token_ids' has 1026"),
        ({"text": LONG}, "text", "context_length_exceeded", f"{CONTEXT} tokens and 'text' has 1025"),
        (
            {"messages": [{"role": "user", "content": LONG}]},
            "messages",
            "context_length_exceeded",
            f"{CONTEXT} tokens and 'messages' has 103",
        ),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_encoded_is_refused_by_name(
    tiny: Server, body: dict[str, Any], param: str, code: str, words: str
) -> None:
    response = http.post(f"{tiny.features_url}/v1/features/encode", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert words in error["message"]
    if code == "context_length_exceeded":
        assert error["message"].endswith(f". Shorten '{param}'.")


@pytest.mark.parametrize("asked", [{"prompt": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}])
def test_a_bias_for_a_token_that_the_model_has_not_is_refused(tiny: Server, asked: dict[str, Any]) -> None:
    path = "completions" if "prompt" in asked else "chat/completions"
    response = http.post(f"{tiny.chat_url}/v1/{path}", json={**asked, "logit_bias": {"99999": 1}})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("logit_bias", "invalid_value")
    assert "logit_bias names token 99999; this model's are 0 to" in error["message"]


def test_what_is_known_of_a_feature(tiny: Server) -> None:
    feature = tiny.get("/v1/features/4").json()
    assert feature["label"] == "label of 4"
    assert feature["source"] == "tokens"
    assert feature["confidence"] == "high"
    assert feature["firing_rate"] == 0.1
    assert feature["mean_firing"] == 2
    assert feature["examples"][0]["activation"] == 9.5
    assert feature["examples"][0]["token"] == "A"
    assert tiny.get("/v1/features/5").json()["label"] == "feature_5"
    found = tiny.get("/v1/features/search?q=label of 6").json()["features"]
    assert [row["feature"] for row in found] == [6, 60, 62]


def test_lookups_do_not_stop_a_generation(tiny: Server) -> None:
    done = threading.Event()

    def look_up() -> None:
        while not done.is_set():
            assert tiny.get("/v1/features/4").status_code == 200

    reader = threading.Thread(target=look_up)
    reader.start()
    _, events = events_of(tiny, "", "hello", **SEEDED)
    done.set()
    reader.join(20)
    assert len(events) > 1


def test_results_that_do_not_fit_are_not_used_and_it_serves_all_the_same(
    tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path
) -> None:
    made_of = pairing(tiny_gemma_path, tiny_sae_path)
    used = fingerprint(write_config(tmp_path, pairing=made_of))
    often = {"results_poll_s": 0.2}
    with serving(tmp_path, app="neuroscope.wsgi", pairing=made_of, device="cpu", serve=often) as server:

        def told(reason: str) -> bool:
            degraded = server.get("/readyz").json()["degraded"]
            mend = "NEUROSCOPE_PAIRING=tiny snakemake --cores 4 labels"
            return [(reason in said, said.count(mend)) for said in degraded] == [(True, 1)] * 2

        assert told("There is no results database at")
        write_results(tmp_path / "results/tiny", type(used).from_dict({**used.to_dict(), "layer": 5}))
        foreign = "results.duckdb is about something else and not used (layer: made with 5, in use is 1)"
        wait_until(lambda: told(foreign), what="a look at the results of another layer")
        ready = server.get("/readyz").json()
        assert ready["status"] == "degraded"
        assert ready["ranking"]["filter"] == "none"
        answer, events = events_of(server, "", "hello", **SEEDED)
        assert answer["choices"][0]["message"]["content"] is not None
        assert events[-1].data["degraded"] == ready["degraded"]
        for feature in events[0].data["top_features"]:
            assert feature["label"] == f"feature_{feature['index']}"
            assert feature["surprise"] is None
        assert events[0].data["filtered_count"] == 0
        assert "missing" in server.output
        assert wait_until(lambda: server.get("/v1/features/4").json())["label"] == "feature_4"


def test_a_start_that_fails_once_the_weights_are_loaded_ends(
    tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path
) -> None:
    """Libraries leave threads behind by then, which Python's own way out waits for."""
    stats = tmp_path / "stats.json"
    stats.write_text("no JSON")
    chat, features = free_ports()
    config = write_config(
        tmp_path,
        pairing=pairing(tiny_gemma_path, tiny_sae_path),
        device="cpu",
        ranking={"stats": str(stats)},
        serve={"port": chat, "features_port": features},
    )
    process = launch(config, "neuroscope.wsgi", tmp_path / "log")
    try:
        assert process.wait(120) != 0
    finally:
        process.kill()
        process.wait()
    assert "stats.json cannot be read as JSON" in (tmp_path / "log").read_text()
