"""The stage that fetches the pairing's sparse autoencoder and writes down where it lies."""

from __future__ import annotations

import json
from pathlib import Path

from neuroscope.manifest import SourcesLock
from neuroscope.settings import Settings
from neuroscope.sources import path_sha256, replace_atomically


def fetch_sae(settings: Settings, *, output: Path) -> None:
    """Fetches and checks the pairing's SAE; `output` becomes its provenance.json."""
    sae = settings.pairing.sae
    found = SourcesLock(settings.results / "sources.lock.json").resolve(sae.uri)
    provenance = {
        "path": str(found.path),
        "source": found.uri,
        "revision": found.revision,
        "sha256": found.sha256 or path_sha256(found.path),
        "format": sae.format,
    }
    with replace_atomically(output) as temporary:
        temporary.write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")
