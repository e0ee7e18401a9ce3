"""One scripted server for the tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import EventStream, Server, serving
from tiny_pairing import pairing


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The real process with the scripted engine; a small queue and ring so that their ends are near."""
    folder: Path = tmp_path_factory.mktemp("server")
    with serving(folder, serve={"queue": 4, "ring": 64, "heartbeat_s": 0.3, "max_streams": 20}) as running:
        yield running
    planned = running.output.count("RuntimeError: (what it says is withheld")
    assert running.output.count("Traceback") == planned, running.output


@pytest.fixture
def stream(server: Server) -> Iterator[EventStream]:
    """A subscriber of the scripted server with the default settings, connected."""
    with EventStream(server.features_port) as subscriber:
        first = next(subscriber.blocks())
        assert first.comment is not None
        yield subscriber


@pytest.fixture(scope="session")
def saying(
    tmp_path_factory: pytest.TempPathFactory, tiny_gemma_path: Path, tiny_sae_path: Path
) -> Iterator[Server]:
    """The real server around a tiny model that says what stands in `say[...]end`, and else what it likes."""
    made_of = pairing(tiny_gemma_path, tiny_sae_path)
    folder: Path = tmp_path_factory.mktemp("saying")
    with serving(folder, app="saying_wsgi", pairing=made_of, device="cpu") as running:
        yield running
    assert "Traceback" not in running.output, running.output
