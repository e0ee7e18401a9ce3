"""Token and licence, asked of a hub on loopback by the real client, in processes of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.hub import FakeHub
from fakes.hub_machine import MODEL, WEIGHTS, Machine, unused_port

from neuroscope import settings
from neuroscope.doctor.access import label_keys, own_files

MODEL_LINE, SAE_LINE = "access to google/gemma-2-2b-it", "access to google/gemma-scope-2b-pt-res"
SAE_PATH = "layer_20/width_16k/average_l0_71/params.npz"
RIGHT, OTHER = "hf_the_right_one", "hf_of_somebody"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.add("google/gemma-2-2b-it", MODEL, gated=True, token=RIGHT)
        hub.add("google/gemma-scope-2b-pt-res", {SAE_PATH: WEIGHTS})
        hub.accounts = {RIGHT: "ada", OTHER: "bob"}
        yield hub


@pytest.fixture
def machine(hub: FakeHub, tmp_path: Path) -> Machine:
    return Machine(tmp_path, hub)


def doctor(machine: Machine, **environment: str) -> dict[str, Any]:
    """The report, and its lines by name."""
    done = machine.neuroscope(
        "doctor", "--json", prelude=WITHOUT_TORCH, **{"NEUROSCOPE_PAIRING": "gemma-2-2b-it", **environment}
    )
    assert done.stderr == "", done.stderr
    for secret in (RIGHT, OTHER):
        assert secret not in done.stdout
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if report["blocked"] else 0)
    return report | {"lines": {check["name"]: check for check in report["checks"]}}


WITHOUT_TORCH = """
import neuroscope.doctor.examination as e
from neuroscope.doctor.torch_build import Torch
e.look_at_torch = lambda seconds: Torch("2.13.0", "CPU only")
"""
"""A prelude: importing PyTorch is tested elsewhere and takes seconds."""


def test_without_a_token_a_gated_model_names_its_licence_the_token_and_the_way_without(
    machine: Machine,
) -> None:
    report = doctor(machine)
    line = report["lines"][MODEL_LINE]
    assert line["status"] == "problem"
    assert "gated and no token is set" in line["found"]
    assert "https://huggingface.co/google/gemma-2-2b-it" in line["wanted"]
    assert report["next"] == "export HF_TOKEN=hf_..."
    assert "NEUROSCOPE_PAIRING=smollm2-135m make demo" in report["why"]
    assert report["lines"][SAE_LINE]["status"] == "ok", "it is open to everybody"


def test_a_token_whose_account_has_not_accepted_the_licence_is_sent_to_its_page(machine: Machine) -> None:
    report = doctor(machine, HF_TOKEN=OTHER)
    assert report["lines"]["hub's token"]["found"] == "a token of bob"
    assert "the token that is set has no access to it" in report["lines"][MODEL_LINE]["found"]
    assert report["next"] == "python3 -m webbrowser https://huggingface.co/google/gemma-2-2b-it"


def test_a_token_with_access_is_ok(machine: Machine) -> None:
    lines = doctor(machine, HF_TOKEN=RIGHT)["lines"]
    assert [lines[name]["status"] for name in ("hub's token", MODEL_LINE, SAE_LINE)] == ["ok"] * 3


def test_a_token_of_hf_auth_login_counts(machine: Machine) -> None:
    (machine.home / "hf").mkdir()
    (machine.home / "hf/token").write_text(f"{RIGHT}\n")
    assert doctor(machine)["lines"][MODEL_LINE]["status"] == "ok"


def test_an_invalid_token_is_told_as_that(machine: Machine) -> None:
    machine.hub.invalid_tokens.add("hf_expired_one")
    report = doctor(machine, HF_TOKEN="hf_expired_one")
    assert report["lines"]["hub's token"]["status"] == "problem"
    assert "mistyped, expired or revoked" in report["lines"]["hub's token"]["found"]
    assert "hf_expired_one" not in json.dumps(report)
    assert MODEL_LINE not in report["lines"], "what it may read is no question any more"


def test_offline_by_wish_and_a_network_that_is_not_there_are_told_apart(machine: Machine) -> None:
    wished = doctor(machine, HF_HUB_OFFLINE="1", HF_TOKEN=RIGHT)
    assert "HF_HUB_OFFLINE is set" in wished["lines"]["hub's token"]["found"]
    assert wished["next"] == "unset HF_HUB_OFFLINE"
    nowhere = f"http://127.0.0.1:{unused_port()}"
    broken = doctor(machine, HF_ENDPOINT=nowhere)
    assert f"the hub at {nowhere} cannot be asked" in broken["lines"][MODEL_LINE]["found"]
    assert broken["next"] == f"curl -sSI {nowhere}"
    assert SAE_LINE not in broken["lines"], "the second question would wait for the same silence"


def test_a_login_page_in_the_hubs_place_lets_nobody_in(machine: Machine) -> None:
    machine.hub.page = b"<!doctype html><title>Welcome to our hotel</title>"
    for token in ({}, {"HF_TOKEN": RIGHT}):
        lines = doctor(machine, **token)["lines"]
        line = lines["hub's token"] if token else lines[MODEL_LINE]
        assert line["status"] == "problem"
        assert "not as a model hub" in line["found"]


def test_what_is_here_needs_no_access_and_asks_nobody(machine: Machine) -> None:
    machine.hub.repositories["models/google/gemma-2-2b-it"].gated = False
    machine.neuroscope("models", "pull", "gemma-2-2b-it")
    machine.neuroscope("sae", "pull", "gemma-2-2b-it")
    machine.hub.requests.clear()
    line = doctor(machine, HF_HUB_OFFLINE="1")["lines"]["hub's token"]
    assert (line["status"], line["found"]) == (
        "ok",
        "there is no token; all of gemma-2-2b-it is here and nothing has to be fetched",
    )
    assert machine.hub.requests == []


def test_a_pairing_of_the_package_index_asks_nobody(machine: Machine) -> None:
    line = doctor(machine, NEUROSCOPE_PAIRING="smollm2-135m")["lines"]["hub's token"]
    assert (line["status"], line["found"]) == ("ok", "there is none; smollm2-135m needs none")
    assert machine.hub.requests == []


@pytest.mark.parametrize("kind", ["file", "missing", "folder", "whole folder", "none"])
def test_a_model_of_ones_own_must_be_there(kind: str, tmp_path: Path) -> None:
    settled = settings.load("smollm2-135m")
    path = tmp_path / ("model" if kind == "whole folder" else "model.gguf")
    if kind == "file":
        path.write_bytes(b"GGUF")
    elif kind != "missing":
        path.mkdir()
        (path / "config.json").touch()
    given = {} if kind == "none" else {"model": str(path)}
    *lines, shipped = own_files(replace(settled, pairing=replace(settled.pairing, **given)))
    expected = {"file": ["ok"], "whole folder": ["ok"], "none": []}.get(kind, ["problem"])
    assert [line.status for line in lines] == expected
    assert all(line.name == "model's files" and str(path) in line.found for line in lines)
    assert (shipped.name, shipped.status) == ("SAE's files", "ok")


def test_claudes_key_is_wanted_only_where_claude_labels_and_is_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [*os.environ]:
        if name.startswith("NEUROSCOPE_"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    plain = settings.load("smollm2-135m")
    claude = settings.load("smollm2-135m", overrides={"labels.labeler": "claude"})
    assert label_keys(plain)[0].status == "ok"
    missing = label_keys(claude)[0]
    assert (missing.status, missing.next) == ("problem", "export ANTHROPIC_API_KEY=...")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789\n")
    assert "blanks or line ends" in label_keys(claude)[0].wanted
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    assert label_keys(claude)[0].found == "set, value not shown and not sent anywhere"
    other = {"labels.labeler": "openai", "labels.model": "m", "labels.base_url": "http://127.0.0.1:1/v1"}
    assert label_keys(settings.load("smollm2-135m", overrides=other))[1].name == "OPENAI_API_KEY"
