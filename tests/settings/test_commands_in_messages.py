"""A command in a message works as it is copied, whichever pairing is in use."""

from __future__ import annotations

import pytest

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
