"""Who tells `neuroscope features` what is known: the running server, else the results on this machine.

Both are made by the same code, so they say the same in the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from neuroscope.cli.flags import overrides
from neuroscope.cli.results import open_own_results
from neuroscope.cli.running import Command, client_of, with_server
from neuroscope.errors import LabelError, NoServerError

if TYPE_CHECKING:
    from neuroscope.client import Client
    from neuroscope.imported import FiringPrior
    from neuroscope.known import Known
    from neuroscope.stats import CalibrationStats
    from neuroscope.store import Results

Row = dict[str, Any]


def with_source(command: Command) -> Command:
    """Adds the flags that say where the answer comes from."""
    command = click.option("--offline", is_flag=True, help="Read the results, also when a server runs.")(
        command
    )
    command = click.option("--pairing", help="The results of this pairing, without a server.")(command)
    return with_server(command)


class Source(Protocol):
    """Who answers."""

    def feature(self, index: int, **query: Any) -> Row: ...
    def search(self, **query: Any) -> Row: ...


@contextmanager
def feature_source(flags: Mapping[str, Any]) -> Iterator[Source]:
    """The server, or the results when there is none; stderr says which."""
    if not flags["offline"] and flags["pairing"] is None:
        with client_of(flags) as client:
            try:
                client.get("/healthz")
            except NoServerError as error:
                if any(flags[name] is not None for name in ("host", "port", "features_port")):
                    raise  # results of here are no answer about the server that was named
                absent = f" {str(error).partition(' (')[0]}."
            else:
                click.echo(f"From the server at {client.features_place}.", err=True)
                yield Served(client)
                return
    else:
        absent = ""
    with _offline(flags) as (offline, path):
        click.echo(f"From {path}.{absent}", err=True)
        yield offline


class Served:
    """The running server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def feature(self, index: int, **query: Any) -> Row:
        page: Row = self._client.get(f"/v1/features/{index}", **query)
        return page

    def search(self, **query: Any) -> Row:
        found: Row = self._client.get("/v1/features/search", **query)
        return found


@dataclass(frozen=True, slots=True)
class Offline:
    """What the server would answer with these results; it is a `Described` without a model."""

    layer: int
    sae_id: str
    width: int
    labels: tuple[str, ...]
    stats: CalibrationStats | FiringPrior | None
    results: Results | None
    neuronpedia: tuple[str, str] | None
    degraded: tuple[str, ...]
    known: Known

    def feature(self, index: int, **query: Any) -> Row:
        from neuroscope.server.feature_page import feature_page, read_examples_wanted

        if index >= self.width:
            raise LabelError(
                f"There is no feature {index}; the SAE has {self.width}, from 0 to {self.width - 1}."
            )
        return feature_page(self, index, read_examples_wanted(_parameters(query)))

    def search(self, **query: Any) -> Row:
        from neuroscope.server.catalogue import Catalogue, read_search

        return Catalogue(self).search(read_search(_parameters(query)))


def _parameters(query: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


@contextmanager
def _offline(flags: Mapping[str, Any]) -> Iterator[tuple[Offline, str]]:
    from neuroscope import settings
    from neuroscope.known import find_known
    from neuroscope.server.loading import sae_name

    settled = settings.load(overrides=overrides({"pairing": flags["pairing"]}))
    with open_own_results(settled) as results:
        path, used = results.path, results.fingerprint()
    known, names = find_known(settled, used), settled.pairing.neuronpedia
    try:
        yield (
            Offline(
                layer=settled.pairing.layer,
                sae_id=sae_name(settled.pairing),
                width=used.d_sae,
                labels=known.labels,
                stats=known.stats,
                results=known.results,
                neuronpedia=None if names is None else (names.model_id, names.sae_id),
                degraded=known.degraded,
                known=known,
            ),
            str(path),
        )
    finally:
        if known.results is not None:
            known.results.close()
