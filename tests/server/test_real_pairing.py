"""The real thing: SmolLM2-135M-Instruct with the shipped SAE, and Gemma 2 when asked for.

`NEUROSCOPE_INTEGRATION_TESTS=1` runs the same on `gemma-2-2b-it`, which needs the hub and its licence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from serving import ROOT, EventStream, Server, http, serving

import neuroscope
from neuroscope.events import ActiveFeature
from neuroscope.ranking import Ranking
from neuroscope.scope import Scope, Token

PAIRINGS = ["smollm2-135m"]
if os.environ.get("NEUROSCOPE_INTEGRATION_TESTS") == "1":
    PAIRINGS.append("gemma-2-2b-it")

EVERY_FEATURE = Ranking(filter="none", top_k=1_000_000)

PLACES = [
    "Berlin is a city in Germany.",
    "I flew from Madrid to Rome, and then to Tokyo in Japan.",
    "London, Vienna and Moscow are old; Chicago is not.",
    "The train from Amsterdam to Prague crosses Germany.",
]
PLACE_NAMES = frozenset(re.findall(r"[A-Z][a-z]{3,}(?<!The)", " ".join(PLACES)))
OTHER_TEXTS = [
    "She quickly ate the soup and laughed about it.",
    "def add(a, b):\n    return a + b\n",
    "It is important to sleep well, because tired people make mistakes.",
    "Water boils when it is hot enough, and then it turns into steam.",
]
PLACE_LABEL = re.compile(
    r"geograph|countr|nation|cit(y|ies)|capital|place|location|town|state|europe|proper|name"
    r"|paris|france|french|london|berlin|rome|german|ital|spain|japan",
    re.IGNORECASE,
)


@pytest.fixture(scope="module", params=PAIRINGS)
def pairing(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def scope(pairing: str) -> Scope:
    return neuroscope.load(pairing)


@pytest.fixture(scope="module")
def real_server(pairing: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`gunicorn neuroscope.wsgi` with the pairing's own file, on free ports."""
    tree: dict[str, Any] = yaml.safe_load((ROOT / f"config/pairings/{pairing}.yaml").read_text())
    if (local := ROOT / tree["sae"]["source"]).exists():
        tree["sae"]["source"] = str(local)
    folder: Path = tmp_path_factory.mktemp("real-server")
    with serving(folder, app="neuroscope.wsgi", pairing=tree, ready=False) as server:
        server.wait_ready(seconds=300)
        yield server


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_inference_produces_features(scope: Scope) -> None:
    """Every generated token has features: index, text, position, and active features with index and label."""
    tokens = list(scope.generate(user("Hello, how are you?"), max_tokens=24, temperature=0))
    answer = [token for token in tokens if token.content]
    assert len(answer) > 3
    assert "".join(token.token for token in answer).strip()
    assert [token.position for token in tokens] == list(
        range(tokens[0].position, tokens[0].position + len(tokens))
    )
    assert all(token.l0 > 0 and token.features for token in answer)
    for token in answer:
        assert isinstance(token.token, str)
        assert len(token.features) <= scope.ranking.top_k
        for feature in token.features:
            assert 0 <= feature.index < scope.engine.sae.d_sae
            assert feature.activation > 0
            assert feature.label
    assert {feature.index for feature in tokens[0].features} != {
        feature.index for feature in tokens[-1].features
    }


@pytest.mark.parametrize(
    "text",
    [
        "👩\u200d👩\u200d👧\u200d👦 漢字かな 한국어",
        "  two spaces",
        "def f(x):\n    if x:\n\treturn  1\n\n",
        "a\u2028b\ufffd",
    ],
)
def test_text_survives_the_real_tokenizer_token_by_token(scope: Scope, text: str) -> None:
    chat = scope.engine.chat
    detokenizer = chat.detokenizer()
    pieces = [detokenizer.step(token) for token in chat.encode_text(text, bos=False).ids]
    assert "".join(pieces) + detokenizer.finish() == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def rates(tokens: list[Token]) -> dict[int, float]:
    """Share of the tokens on which each feature is active."""
    counts: dict[int, int] = {}
    for token in tokens:
        for feature in token.features:
            counts[feature.index] = counts.get(feature.index, 0) + 1
    return {index: count / len(tokens) for index, count in counts.items()}


def content_of(scope: Scope, texts: list[str]) -> list[Token]:
    return [t for text in texts for t in scope.encode(text, ranking=EVERY_FEATURE) if t.content]


def test_feature_activations_are_plausible(scope: Scope) -> None:
    """The answer about France says Paris, with features that fire on names of places and hardly elsewhere.

    Where the pairing's features have labels, some of the answer's speak of places or names too.
    """
    question = user("What is the capital of France?")
    answer = [
        t for t in scope.generate(question, max_tokens=24, temperature=0, ranking=EVERY_FEATURE) if t.content
    ]
    assert "Paris" in "".join(token.token for token in answer)
    found: dict[int, ActiveFeature] = {
        feature.index: feature for token in answer for feature in token.features
    }

    names = [token for token in content_of(scope, PLACES) if token.token.strip() in PLACE_NAMES]
    assert len(names) >= 8
    on_names, elsewhere = rates(names), rates(content_of(scope, OTHER_TEXTS))
    of_places = {index for index, rate in on_names.items() if rate >= 0.5 and elsewhere.get(index, 0) <= 0.05}
    assert of_places & found.keys()

    if scope.known.label_sources:
        labels = [feature.label for feature in found.values()]
        assert any(PLACE_LABEL.search(label) for label in labels), labels


def test_features_sync_with_tokens(real_server: Server) -> None:
    """Every token of the chat stream has one feature event of its index, published before its chunk."""
    body = {"messages": user("Name three colours."), "stream": True, "max_tokens": 16, "temperature": 0}
    with EventStream(real_server.features_port) as stream:
        assert next(stream.blocks()).comment is not None
        with http.stream(
            "POST", f"{real_server.chat_url}/v1/chat/completions", json=body, timeout=300
        ) as response:
            lines = [line[6:] for line in response.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        chunks = [json.loads(line) for line in lines[:-1]]
        published = stream.until("generation_complete")
    events = [event.data for event in published if event.name == "feature_activation"]
    indices = [event["token_index"] for event in events]
    assert indices == list(range(len(events)))
    emitted = [index for chunk in chunks for index in chunk.get("neuroscope", {}).get("token_indices", [])]
    assert emitted == sorted(set(emitted))
    assert set(emitted) <= set(indices)
    said = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert said.strip()
    assert said == "".join(event["token"] for event in events)
    assert {event["completion_id"] for event in events} == {chunks[0]["id"]}
