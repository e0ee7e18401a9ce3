"""Sparse autoencoders: `load_sae` reads any known release format into a `SparseAutoencoder`."""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseActs, SparseAutoencoder, fvu, sparse, top_k
from neuroscope.sae.formats import FORMATS

__all__ = ["FORMATS", "SparseActs", "SparseAutoencoder", "fvu", "load_sae", "sparse", "top_k"]


def load_sae(
    path: str | Path,
    *,
    format: str = "gemma_scope",
    input_norm: str | None = None,
    device: str = "auto",
    decoder: bool = True,
) -> SparseAutoencoder:
    """Loads an SAE from a local path.

    `input_norm` None keeps the release's own; "none" or "rms" overrides it. `decoder=False` leaves W_dec and b_dec
    out, which halves the memory. Raises SAEFormatError when the file is not what `format` says.
    """
    from neuroscope.models.loading import pick_device

    if format not in FORMATS:
        raise SAEFormatError(f"SAE format {format!r} is not known. Accepted: {', '.join(FORMATS)}.")
    sae = FORMATS[format](Path(path), decoder=decoder, input_norm=input_norm)
    target = pick_device(device)
    for name in ("W_enc", "b_enc", "threshold", "W_dec", "b_dec"):
        tensor = getattr(sae, name)
        setattr(sae, name, None if tensor is None else tensor.to(target))
    return sae
