"""The specification's end-to-end smoke test: the real model, the shipped SAE, real processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import yaml
from serving import ROOT, EventStream, Server, free_ports, launch


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`gunicorn neuroscope.wsgi` on smollm2-135m as it is configured, without results of the pipeline."""
    folder = tmp_path_factory.mktemp("embedded")
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "workflow").symlink_to(ROOT / "workflow")
    port, features_port = free_ports()
    config: Path = folder / "config/config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["serve"] |= {"port": port, "features_port": features_port}
    config.write_text(yaml.safe_dump(settings))
    log = folder / "server.log"
    process = launch(config, "neuroscope.wsgi", log, env={"NEUROSCOPE_PAIRING": "smollm2-135m"})
    server = Server(process, port, features_port, log)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


def test_full_workflow(embedded: Server) -> None:
    client = openai.OpenAI(base_url=f"{embedded.chat_url}/v1", api_key="none", timeout=300)
    for question, expected in [
        ("What is the capital of France?", "Paris"),
        ("What is the capital of Germany?", "Berlin"),  # a second request after the first
    ]:
        with EventStream(embedded.features_port) as stream:
            next(stream.blocks())
            answer = client.chat.completions.create(
                model="smollm2-135m",
                messages=[{"role": "user", "content": question}],
                temperature=0,
                max_tokens=24,
            )
            *activations, complete = stream.until("generation_complete")
        text = answer.choices[0].message.content
        assert text is not None
        assert expected in text
        assert answer.usage is not None
        assert complete.data["completion_id"] == answer.id
        assert complete.data["total_tokens"] == answer.usage.completion_tokens
        assert "".join(event.data["token"] for event in activations) == text
        assert [event.data["token_index"] for event in activations] == list(range(len(activations)))
        assert len(activations) >= answer.usage.completion_tokens, "the end of the turn is one more"
        for event in activations:
            assert event.name == "feature_activation"
            assert 0 < event.data["l0"] < 400
            assert 0 < event.data["fvu"] < 1
            assert len(event.data["top_features"]) == min(10, event.data["l0"])
