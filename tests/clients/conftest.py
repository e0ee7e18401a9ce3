"""The servers that other people's clients talk to: a scripted one with a key, and a real tiny model without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import KEY, Servers
from serving import serving
from tiny_pairing import pairing


@pytest.fixture(scope="session")
def servers(
    tmp_path_factory: pytest.TempPathFactory, tiny_gemma_path: Path, tiny_sae_path: Path
) -> Iterator[Servers]:
    """Both real processes. The key of the scripted one has every client prove that it sends one."""
    folder = tmp_path_factory.mktemp("clients")
    for name in ("scripted", "tiny"):
        (folder / name).mkdir()
    made_of = pairing(tiny_gemma_path, tiny_sae_path)
    with (
        serving(
            folder / "scripted",
            env={"THE_KEY": KEY},
            serve={"api_key_env": "THE_KEY", "heartbeat_s": 0.3},
            ready=False,
        ) as scripted,
        serving(folder / "tiny", app="neuroscope.wsgi", pairing=made_of, device="cpu", ready=False) as tiny,
    ):
        scripted.wait_ready()
        tiny.wait_ready()
        yield Servers(scripted, tiny)
    planned = scripted.output.count("RuntimeError: (what it says is withheld")
    assert scripted.output.count("Traceback") == planned, scripted.output
    assert "Traceback" not in tiny.output, tiny.output
