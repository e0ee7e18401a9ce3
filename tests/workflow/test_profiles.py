"""The profiles for clusters say what this Snakemake, this workflow and, by their names, the executors know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.cli import get_argument_parser

ROOT = Path(__file__).parents[2]
PROFILES = sorted((ROOT / "workflow/profiles").iterdir())
EXECUTOR_OPTIONS = {
    "slurm": set[str](),
    "kubernetes": {"kubernetes-namespace", "kubernetes-persistent-volumes"},
}
"""Options of the executors' own, whose plugins are not installed here; each was run with its plugin once."""


def read(profile: Path) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((profile / "config.yaml").read_text(encoding="utf-8"))
    return tree


def rule_bodies() -> dict[str, str]:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "workflow/rules").glob("*.smk"))
    parts = re.split(r"^(?:rule (\w+)|use rule \w+ as (\w+) with):", text, flags=re.MULTILINE)
    return {
        plain or used: body for plain, used, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


def rules_with_a_model() -> set[str]:
    bodies = rule_bodies()
    found = {name for name, body in bodies.items() if "**MODEL_JOB" in body}
    return found | {"calibration_shard"}  # use rule shard


def test_there_are_the_two_that_are_promised() -> None:
    assert [path.name for path in PROFILES] == ["kubernetes", "slurm"]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_every_option_is_known(profile: Path) -> None:
    known = {
        option.removeprefix("--")
        for action in get_argument_parser()._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    assert set(read(profile)) <= known | EXECUTOR_OPTIONS[profile.name]
    assert read(profile)["executor"] == profile.name


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_every_rule_that_is_named_exists_and_every_model_gets_a_gpu(profile: Path) -> None:
    wanted = read(profile)["set-resources"]
    assert set(wanted) <= set(rule_bodies())
    assert {name for name, resources in wanted.items() if resources.get("gpu") == 1} == rules_with_a_model()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_shards_may_run_side_by_side_and_be_done_again(profile: Path) -> None:
    tree = read(profile)
    assert tree["resources"]["model"] == tree["jobs"] > 1
    assert tree["retries"] > 0
    local = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text(encoding="utf-8"))
    for option in ("rerun-incomplete", "nolock"):
        assert tree[option] == local[option], "it takes the place of the default profile"
