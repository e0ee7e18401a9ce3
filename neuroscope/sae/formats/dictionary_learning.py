"""dictionary_learning (Marks, Karvonen, Mueller): `ae.pt`, and `config.json` whose trainer.dict_class is the formula.

Its dictionary.py and trainers/: all but JumpReluAutoEncoder and AutoEncoderNew read x - b_dec. BatchTopK and Matryoshka
SAEs are at inference a ReLU with one global threshold (Bussmann et al. 2024, arXiv 2412.06410), AutoEncoderTopK keeps
k a token, and GatedAutoEncoder and JumpReluAutoEncoder multiply their acts by the norms of the decoder's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from neuroscope.errors import SAEFormatError
from neuroscope.sae.autoencoder import SparseAutoencoder
from neuroscope.sae.checks import Array, whole_number
from neuroscope.sae.config import read_config
from neuroscope.sae.folding import Weights
from neuroscope.sae.formats.locate import weights_file
from neuroscope.sae.torch_file import read_torch

FILE = "ae.pt"
CONFIG = "config.json"


class _Layout(NamedTuple):
    """How one dict_class keeps its weights; two-dimensional names of torch's linear layers are transposed."""

    W_enc: str
    b_enc: str
    W_dec: str
    b_dec: str
    others: Mapping[str, int] = {}
    """Further names -> dimensions."""
    reads_x_minus_b_dec: bool = True
    rescales_acts: bool = False


_LINEAR = ("encoder.weight", "encoder.bias", "decoder.weight")
LAYOUTS = {
    "AutoEncoder": _Layout(*_LINEAR, "bias"),
    "AutoEncoderNew": _Layout(*_LINEAR, "decoder.bias", reads_x_minus_b_dec=False),
    "AutoEncoderTopK": _Layout(*_LINEAR, "b_dec", {"k": 0}),
    "BatchTopKSAE": _Layout(*_LINEAR, "b_dec", {"threshold": 0}),
    "MatryoshkaBatchTopKSAE": _Layout("W_enc", "b_enc", "W_dec", "b_dec", {"threshold": 0}),
    "GatedAutoEncoder": _Layout(
        "encoder.weight",
        "mag_bias",
        "decoder.weight",
        "decoder_bias",
        {"r_mag": 1, "gate_bias": 1},
        rescales_acts=True,
    ),
    "JumpReluAutoEncoder": _Layout(
        "W_enc",
        "b_enc",
        "W_dec",
        "b_dec",
        {"threshold": 1},
        reads_x_minus_b_dec=False,
        rescales_acts=True,
    ),
}


def load(path: Path, *, decoder: bool = True, input_norm: str | None = None) -> SparseAutoencoder:
    """The SAE in `path`, the file or its folder (trainer_0/)."""
    file = weights_file(path, FILE)
    trainer = read_config(file.with_name(CONFIG)).section("trainer")
    dict_class = trainer.text("dict_class")
    if dict_class not in LAYOUTS:
        raise trainer.refusal("dict_class", f"one of {', '.join(LAYOUTS)}")
    layout = LAYOUTS[dict_class]
    names = {layout.W_enc: 2, layout.b_enc: 1, layout.W_dec: 2, layout.b_dec: 1, **layout.others}
    arrays = read_torch(file, names, optional=frozenset({"k"}))
    weights = _weights(file, layout, arrays)
    if layout.rescales_acts:
        weights.threshold = weights.threshold * weights.decoder_norms()
        weights.rescale_acts_by_decoder_norm()
    if layout.reads_x_minus_b_dec:
        weights.subtract_b_dec()
    k = None
    if "k" in layout.others:
        k = whole_number(file, "k", arrays["k"]) if "k" in arrays else trainer.whole("k")
    return weights.autoencoder(decoder=decoder, input_norm=input_norm or "none", k=k)


def _weights(file: Path, layout: _Layout, arrays: Mapping[str, Array]) -> Weights:
    W_enc, W_dec = (
        arrays[name].T if name.endswith(".weight") else arrays[name] for name in (layout.W_enc, layout.W_dec)
    )
    b_enc, b_dec = arrays[layout.b_enc], arrays[layout.b_dec]
    if "r_mag" in arrays:
        return Weights.gated(
            file, W_enc, W_dec, b_dec, r_mag=arrays["r_mag"], b_mag=b_enc, b_gate=arrays["gate_bias"]
        )
    threshold = arrays.get("threshold", 0.0)
    if layout.others.get("threshold") == 0 and threshold < 0:
        raise SAEFormatError(
            f"{file}: its threshold is {threshold}, with which training begins: it ended before a threshold was found. "
            "Choose a later checkpoint."
        )
    weights = Weights(file, W_enc, b_enc, W_dec, b_dec, threshold)
    weights.clip_threshold()
    return weights
