"""The fingerprint of a model and an SAE as they were loaded, the same for the pipeline and for the server.

What a fingerprint is and how two are compared is `manifest`'s business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroscope.manifest import Fingerprint
from neuroscope.sae import SparseAutoencoder
from neuroscope.settings import Pairing
from neuroscope.sources import Resolved, path_sha256


def fingerprint_of(
    pairing: Pairing,
    *,
    model: Resolved,
    tokenizer: Any,
    sae: SparseAutoencoder,
    sae_file: Path,
    corpus_sha256: str | None = None,
    sweep: Mapping[str, Any] | None = None,
) -> Fingerprint:
    """Who we are: `model` is the resolved `pairing.model`, `sae` was read from `sae_file`, a file or folder."""
    return Fingerprint(
        model=pairing.model,
        model_revision=model.revision or model.sha256,
        tokenizer_sha256=tokenizer_sha256(tokenizer),
        sae=pairing.sae.uri,
        sae_sha256=path_sha256(sae_file),
        layer=pairing.layer,
        d_in=sae.d_in,
        d_sae=sae.d_sae,
        input_norm=sae.input_norm,
        corpus_sha256=corpus_sha256,
        sweep=dict(sweep or {}),
    )


def tokenizer_sha256(tokenizer: Any) -> str:
    """SHA-256 of a transformers tokenizer: vocabulary, merges and rules, and the chat template.

    Truncation and padding are left out: they are how a tokenizer was last called, not what it is.
    """
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules.pop("truncation", None)
    rules.pop("padding", None)
    text = json.dumps([rules, tokenizer.chat_template], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
