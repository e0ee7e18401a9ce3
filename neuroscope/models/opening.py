"""From a model's files to a backend: the one place that knows which there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroscope.models.llamacpp import LlamaCppBackend
from neuroscope.models.llamacpp_file import gguf_file
from neuroscope.models.llamacpp_model import declared_type
from neuroscope.models.loading import load_model, load_tokenizer, pick_device
from neuroscope.models.torch_backend import TorchBackend


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A model that is ready to run."""

    backend: TorchBackend | LlamaCppBackend
    tokenizer: Any
    numbers: str
    """What its weights are kept in: float32, q4_1."""


def open_backend(
    path: Path,
    layer: int,
    *,
    backend: str,
    device: str,
    dtype: str,
    quantization: str,
    decode_step: str = "auto",
) -> Opened:
    """The model at `path`, a folder or GGUF file, by `torch` or `llamacpp`. Raises ModelError."""
    if backend == "llamacpp":
        return _open_gguf(path, layer, device, quantization)
    model, tokenizer = load_model(path, device=device, dtype=dtype, quantization=quantization)
    opened = TorchBackend(model, tokenizer, layer, decode=decode_step)
    _ = opened.decode  # settled now, and not while somebody waits for an answer
    return Opened(opened, tokenizer, str(model.dtype).removeprefix("torch."))


def _open_gguf(path: Path, layer: int, device: str, quantization: str) -> Opened:
    file = gguf_file(path, quantization)
    backend = LlamaCppBackend(file, layer, device=pick_device(device))
    return Opened(backend, load_tokenizer(path), declared_type(file))
