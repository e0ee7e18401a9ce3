"""The command line `llm` with this server in its extra-openai-models.yaml, run command by command in one process.

LLM_USER_PATH is the folder of its settings, which this program writes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from cases import (
    KEY,
    LATE_FAILURE,
    MODEL,
    SCRIPTED,
    TINY,
    TINY_MODEL,
    TOO_LONG,
    WORDS,
    middle_of,
    print_cases,
    said,
)
from click.testing import CliRunner

MODELS = [
    {"model_id": "scripted", "model_name": MODEL, "api_base": SCRIPTED, "api_key_name": "neuroscope"},
    {"model_id": "unkeyed", "model_name": MODEL, "api_base": SCRIPTED, "api_key_name": "other"},
    {"model_id": "missing", "model_name": "gpt-4o", "api_base": SCRIPTED, "api_key_name": "neuroscope"},
    {
        "model_id": "text",
        "model_name": MODEL,
        "api_base": SCRIPTED,
        "api_key_name": "neuroscope",
        "completion": True,
    },
    {"model_id": "tiny", "model_name": TINY_MODEL, "api_base": TINY, "api_key_name": "neuroscope"},
]
folder = Path(os.environ["LLM_USER_PATH"])
(folder / "extra-openai-models.yaml").write_text(yaml.safe_dump(MODELS))
(folder / "keys.json").write_text(json.dumps({"neuroscope": KEY, "other": "wrong"}))

from llm.cli import cli  # noqa: E402 - reads the folder when it is imported


def llm(*arguments: str) -> Any:
    return CliRunner().invoke(cli, list(arguments))


def text(*arguments: str) -> str:
    done = llm(*arguments)
    assert done.exit_code == 0, done.output
    return str(done.stdout).removesuffix("\n")


def error(*arguments: str) -> dict[str, Any]:
    done = llm(*arguments)
    return {"status": int(done.stderr.partition("code: ")[2][:3] or 0), "message": done.stderr}


def logged() -> dict[str, Any]:
    """Of the last answer, as it keeps it."""
    return dict(json.loads(text("logs", "-n", "1", "--json"))[0])


for case, more in (("streamed", []), ("whole", ["--no-stream"])):
    answer = text("-m", "scripted", WORDS, *more)
    entry = logged()
    said[case] = {"text": answer, "usage": [entry["input_tokens"], entry["output_tokens"]]}
said["continued"] = text("-c", "and four")
said["continues"] = entry["conversation_id"] == logged()["conversation_id"]
said["text model"] = [text("-m", "text", WORDS), text("-m", "text", WORDS, "--no-stream")]
said["limited"] = text("-m", "scripted", WORDS, "-o", "max_tokens", "2")
said["wrong key"] = error("-m", "unkeyed", WORDS)
said["wrong model"] = error("-m", "missing", WORDS)
said["too long"] = error("-m", "scripted", TOO_LONG)
said["late failure"] = error("-m", "scripted", LATE_FAILURE)

seeded = ["-m", "tiny", "hello", "-o", "temperature", "1", "-o", "max_tokens", "24", "-o", "seed"]
whole = text(*seeded, "7", "--no-stream")
said["seeds"] = [whole, text(*seeded, "7"), text(*seeded, "8")]
stopped = [*seeded, "7", "-o", "stop", middle_of(whole)]
said["stopped"] = [whole, middle_of(whole), text(*stopped, "--no-stream"), text(*stopped)]
said["systems"] = []
for system in ([], ["-s", "be kind"]):
    text(*seeded, "7", *system)
    said["systems"].append(logged()["input_tokens"])
print_cases()
