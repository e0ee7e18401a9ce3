"""Which backend runs the model, by what was asked for: numbers of bits that only one of them has settle it."""

from __future__ import annotations

from neuroscope.errors import ConfigError
from neuroscope.models.gguf_types import FILE_TYPES, file_type

TORCH_QUANTIZATIONS = ("none", "int8", "int4")


def choose_backend(backend: str, quantization: str) -> tuple[str, str]:
    """`torch` or `llamacpp`, and the quantization by its one name.

    Raises ConfigError for a quantization that is not known, or that the backend asked for does not have.
    """
    name = quantization.lower()
    gguf = None if name in TORCH_QUANTIZATIONS else file_type(name)
    if name not in TORCH_QUANTIZATIONS and gguf is None:
        raise ConfigError(
            f"quantization {quantization!r} is not known. Use {', '.join(TORCH_QUANTIZATIONS)}, or a type of GGUF "
            f"files: {', '.join(FILE_TYPES)}."
        )
    if gguf is not None and backend == "torch":
        raise ConfigError(
            f"quantization {quantization} is a type of GGUF files, which the backend torch does not compute with. "
            "Set backend (--backend) to llamacpp."
        )
    if name in ("int8", "int4") and backend == "llamacpp":
        raise ConfigError(
            f"quantization {name} is torch's; the backend llamacpp has {', '.join(FILE_TYPES)}. "
            "Set quantization (--quantization) to one of these."
        )
    if backend == "auto":
        backend = "torch" if gguf is None else "llamacpp"
    return backend, gguf or name
