"""Continue's command line, `cn`, with the config.yaml of the README: each case is a run of its own.

CN is its command, as JSON; CONTINUE_CONFIG the README's file, whose values this program puts its own in place of;
CONTINUE_GLOBAL_DIR the folder in which `cn` keeps what it keeps. The tiny model's context is too short for its
instructions, and an answer that fails half way it asks for ten times over, so neither is a case.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from cases import KEY, MODEL, SCRIPTED, TOO_LONG, WORDS, print_cases, said

folder = Path(os.environ["CONTINUE_GLOBAL_DIR"])
documented = yaml.safe_load(os.environ["CONTINUE_CONFIG"])


def config(name: str, **values: Any) -> Path:
    """A file as the README's, with other values for its model; options go where it has options."""
    own = copy.deepcopy(documented)
    (model,) = own["models"]
    assert model["provider"] == "openai"
    for key, value in values.items():
        place = model if key in model else model["defaultCompletionOptions"]
        assert key in place, f"the README's model has no {key}"
        place[key] = value
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(own))
    return path


def cn(settings: Path, question: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*json.loads(os.environ["CN"]), "-p", question, "--config", str(settings), *flags]
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def text(*arguments: Any) -> str:
    done = cn(*arguments)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def error(*arguments: Any) -> dict[str, Any]:
    done = cn(*arguments)
    assert done.returncode != 0, done.stdout
    message = json.loads(done.stderr)["message"]
    status = re.search(r"\b[45]\d\d\b", message)  # words of its own may stand before it
    return {"status": int(status[0]) if status else 0, "message": message}


scripted = config("scripted", apiBase=SCRIPTED, model=MODEL, apiKey=KEY, maxTokens=100)
said["answered"] = text(scripted, WORDS)
said["limited"] = text(config("limited", apiBase=SCRIPTED, model=MODEL, apiKey=KEY, maxTokens=2), WORDS)
said["wrong key"] = error(config("unkeyed", apiBase=SCRIPTED, model=MODEL, apiKey="wrong"), WORDS)
said["wrong model"] = error(config("missing", apiBase=SCRIPTED, model="gpt-4o", apiKey=KEY), WORDS)
said["too long"] = error(scripted, TOO_LONG)
print_cases()
