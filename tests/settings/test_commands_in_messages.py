"""A command in a message works as it is copied, whichever pairing is in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import neuroscope
from neuroscope.errors import ArtefactError
from neuroscope.settings.commands import commands_name, with_pairing


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("Make it with `snakemake --cores 4 labels`.", "Make it with `{p}snakemake --cores 4 labels`."),
        ("Build it with: neuroscope corpus build", "Build it with: {p}neuroscope corpus build"),
        (
            "`neuroscope labels generate`, `neuroscope verify`",
            "`{p}neuroscope labels generate`, `{p}neuroscope verify`",
        ),
        ("Run NEUROSCOPE_PAIRING=other snakemake --cores 8 labels", None),
        ("Run `neuroscope verify --pairing other`.", None),
        ("`neuroscope sae list` asks no network.", None),
        ("/opt/neuroscope labels nothing", None),
    ],
)
def test_commands_of_the_pipeline_name_the_pairing_once(message: str, named: str | None) -> None:
    expected = message if named is None else named.format(p="NEUROSCOPE_PAIRING=mine ")
    assert with_pairing(message, "mine") == expected
    assert with_pairing(expected, "mine") == expected


def test_an_error_keeps_its_kind_and_names_the_pairing() -> None:
    with (
        pytest.raises(ArtefactError, match="`NEUROSCOPE_PAIRING=mine snakemake --cores 4 labels`"),
        commands_name("mine"),
    ):
        raise ArtefactError("Make it with `snakemake --cores 4 labels`.")


def test_a_file_that_cannot_be_used_is_deleted_before_the_command_that_makes_it() -> None:
    """Snakemake looks at times, not at bytes: it leaves a damaged file that is newer than its inputs."""
    package = Path(neuroscope.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    bare = [
        f"{path.name}: {found[0]}"
        for path, text in texts.items()
        for found in re.finditer(r".*\b(?:it|them|both) anew with.{0,3}(?:snakemake|neuroscope) .*", text)
        if not re.search(r"Delete|--refresh", found[0])
    ]
    assert not bare
