"""Continue's command line against the real server, with the config.yaml that the README shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import agreed
import pytest
from running import Heard, Servers, hear, node, python

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def heard(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    (config,) = re.findall(r"```yaml\n(name: .*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    settings = {
        "CN": json.dumps(node("node_modules/@continuedev/cli/dist/cn.js")),
        "CONTINUE_CONFIG": config,
        "CONTINUE_GLOBAL_DIR": str(tmp_path_factory.mktemp("continue")),
        "CONTINUE_METRICS_ENABLED": "0",
        "CONTINUE_CLI_AUTO_UPDATED": "1",  # else it may install a newer one
    }
    return hear(servers, python("continue_program.py"), settings)


def test_it_answers_though_it_offers_tools_that_no_model_here_calls(heard: Heard) -> None:
    """With every question it sends its tools, and its instructions as a system turn; it always streams."""
    assert heard["answered"] == agreed.WORDS


def test_the_limit_of_its_settings_cuts(heard: Heard) -> None:
    assert heard["limited"] == "one two"


def test_errors_are_told_apart(heard: Heard) -> None:
    agreed.errors(heard, codes=False)  # it prints status and sentence only
