"""Sparse autoencoders: `load_sae` reads any known release format into a `SparseAutoencoder`."""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseActs, SparseAutoencoder, fvu, sparse, top_k
from neuroscope.sae.formats import FORMATS, looks_like

__all__ = ["FORMATS", "SparseActs", "SparseAutoencoder", "fvu", "load_sae", "sparse", "top_k"]


def load_sae(
    path: str | Path,
    *,
    format: str = "gemma_scope",
    input_norm: str | None = None,
    device: str = "auto",
    decoder: bool = True,
    k: int | None = None,
) -> SparseAutoencoder:
    """Loads an SAE from a local path: the file of weights, or the folder that holds it and its configuration.

    `input_norm` None keeps the release's own; a name of INPUT_NORMS overrides it. `decoder=False` leaves W_dec and
    b_dec out, which halves the memory. `k` is for TopK releases that do not say how many features a token keeps
    (qwen_scope). Raises SAEFormatError when the file is not what `format` says.
    """
    from neuroscope.models.loading import pick_device

    if format not in FORMATS:
        raise SAEFormatError(f"SAE format {format!r} is not known. Accepted: {', '.join(FORMATS)}.")
    if k is not None and format != "qwen_scope":
        raise SAEFormatError(f"k is said by the release itself in format {format}; leave it out.")
    options = {"decoder": decoder, "input_norm": input_norm} | ({} if k is None else {"k": k})
    try:
        sae = FORMATS[format](Path(path), **options)
    except SAEFormatError as error:
        other = looks_like(Path(path))
        if other in (None, format):
            raise
        raise SAEFormatError(
            f"{error} Its files are named as format {other} names them: set sae.format."
        ) from error
    target = pick_device(device)
    for name in ("W_enc", "b_enc", "threshold", "W_dec", "b_dec"):
        tensor = getattr(sae, name)
        setattr(sae, name, None if tensor is None else tensor.to(target))
    return sae
