"""A pairing's SAE: read as the pairing says, and what the pairing says about it held against what was read."""

from __future__ import annotations

from pathlib import Path

from neuroscope.errors import SAEFormatError
from neuroscope.sae import SparseAutoencoder, load_sae
from neuroscope.settings import Pairing


def load_pairing_sae(pairing: Pairing, file: Path, *, device: str, decoder: bool = True) -> SparseAutoencoder:
    """The SAE of `pairing` from `file`, the file or folder that its source was fetched to.

    Raises SAEFormatError when it has another number of features than `sae.width` says: the settings are about another
    SAE, or the source holds another one than its name promises.
    """
    sae = load_sae(
        file,
        format=pairing.sae.format,
        input_norm=pairing.sae.input_norm,
        device=device,
        decoder=decoder,
    )
    if pairing.sae.width not in (None, sae.d_sae):
        raise SAEFormatError(
            f"The SAE {pairing.sae.uri} has {sae.d_sae} features, sae.width says {pairing.sae.width}. "
            f"If this SAE is meant, set sae.width (--sae-width) to {sae.d_sae}."
        )
    return sae
