"""From settings to everything an answer is made with: the library's scope in the server's words.

What is loaded from where, and what is done about missing or foreign results, is `scope` and `known`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from neuroscope.server.loaded import Load, Loaded, Source

if TYPE_CHECKING:
    from neuroscope.manifest import Fingerprint
    from neuroscope.scope import Scope
    from neuroscope.settings import Pairing, Settings


def loader(settings: Settings) -> Load:
    """Loads what `settings` name when it is called: torch and transformers are imported then."""

    def load(enter_stage: Callable[[str], None]) -> Loaded:
        enter_stage("importing torch and transformers")
        from neuroscope.scope import assemble

        return in_server_words(assemble(settings, enter_stage))

    return load


def in_server_words(scope: Scope) -> Loaded:
    if scope.fingerprint is None:
        raise ValueError("a scope that was put together by hand does not say what its results must be about")

    pairing, engine, known = scope.settings.pairing, scope.engine, scope.known
    name = model_name(pairing)
    return Loaded(
        model=name,
        aliases=frozenset({pairing.name, name.rpartition("/")[2]}),
        pairing=pairing.name,
        engine=engine,
        context_length=engine.backend.context_length,
        fingerprint=scope.fingerprint,
        layer=pairing.layer,
        device=str(engine.sae.device),
        dtype=scope.numbers,
        decoding=engine.backend.decoding,
        sae_id=sae_name(pairing),
        width=engine.sae.d_sae,
        labels=known.labels,
        label_sources=known.label_sources,
        stats=known.stats,
        results=known.results,
        neuronpedia=(pairing.neuronpedia.model_id, pairing.neuronpedia.sae_id)
        if pairing.neuronpedia
        else None,
        verification=known.verification,
        degraded=known.degraded,
        known=known,
        source=source_of(scope.settings, scope.fingerprint),
    )


def source_of(settings: Settings, used: Fingerprint) -> Source:
    """The results folder of `settings`, for what describes itself as `used`."""
    from neuroscope.known import find_known, look

    return Source(partial(look, settings), partial(find_known, settings, used))


def model_name(pairing: Pairing) -> str:
    """The id clients use: `org/name` on the hub, else the pairing's name."""
    kind, _, rest = pairing.model.partition("://")
    return rest.partition("@")[0] if kind == "hf" else pairing.name


def sae_name(pairing: Pairing) -> str:
    """`org/name/folder` on the hub, else the folder or file's own name: no path of this machine."""
    uri = pairing.sae.uri.partition("#")[0]
    kind, _, rest = uri.partition("://")
    if kind == "hf":
        return rest.partition("@")[0].removesuffix("/params.npz")
    path = Path(uri)
    return path.parent.name if path.name == "params.npz" else path.stem
