"""A GGUF file opened by llama.cpp: the weights and what the file says of itself.

llama.cpp maps a file into memory by itself, in pages of 4 kB. Here the weights are read into large pages where there is
room: a token takes a twentieth to a tenth less.
"""

from __future__ import annotations

import ctypes
import glob
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from neuroscope import large_pages
from neuroscope.errors import ModelError
from neuroscope.memory import memory
from neuroscope.models.gguf_types import FILE_TYPES
from neuroscope.models.llamacpp_library import llama, said
from neuroscope.models.llamacpp_trial import must_survive

VALUE_BYTES = 256
ROOM = 2
"""Times a file that must be free to read it instead of mapping it: what is read the system cannot drop again."""


@dataclass(eq=False)
class OpenModel:
    """Weights in memory; `close` frees them, after every context of theirs."""

    pointer: Any
    vocabulary: int
    width: int
    layers: int
    context_length: int
    architecture: str
    is_recurrent: bool
    end_ids: frozenset[int]

    def close(self) -> None:
        if self.pointer:
            llama().llama_model_free(self.pointer)
            self.pointer = None


def open_model(path: Path, *, gpu: bool = False) -> OpenModel:
    """The model at `path`. Raises ModelError for what is not a causal language model in a whole GGUF file."""
    library = llama()
    must_survive(path)
    on_gpu = gpu and library.llama_supports_gpu_offload()
    pointer = _load(path, in_large_pages=not on_gpu and _room_for(path), n_gpu_layers=-1 if on_gpu else 0)
    vocab = library.llama_model_get_vocab(pointer)
    vocabulary = library.llama_vocab_n_tokens(vocab)
    model = OpenModel(
        pointer=pointer,
        vocabulary=vocabulary,
        width=library.llama_model_n_embd(pointer),
        layers=library.llama_model_n_layer(pointer),
        context_length=library.llama_model_n_ctx_train(pointer),
        architecture=_text(pointer, "general.architecture") or "unknown",
        is_recurrent=library.llama_model_is_recurrent(pointer) or library.llama_model_is_hybrid(pointer),
        end_ids=frozenset(token for token in range(vocabulary) if library.llama_vocab_is_eog(vocab, token)),
    )
    if library.llama_model_has_encoder(pointer) or not library.llama_model_has_decoder(pointer):
        model.close()
        raise ModelError(
            f"{path} ({model.architecture}) is no causal language model: nothing can be generated."
        )
    return model


def declared_type(path: Path) -> str:
    """The number type that a file says it is in, `gguf` where it says none known here. Raises as `open_model`."""
    must_survive(path)
    pointer = _load(path, vocab_only=True)
    try:
        number = _text(pointer, "general.file_type") or ""
    finally:
        llama().llama_model_free(pointer)
    return next((name for name, known in FILE_TYPES.items() if str(known) == number), "gguf")


def try_model(name: str) -> None:
    """Opens a file and runs a token, to see whether the process lives; what fails in words is said by who opens it."""
    library = llama()
    try:
        pointer = _load(Path(name), in_large_pages=_room_for(Path(name)))
    except ModelError:
        return
    wanted = library.llama_context_default_params()
    wanted.n_ctx = wanted.n_batch = wanted.n_ubatch = 32
    wanted.n_threads = wanted.n_threads_batch = 1
    if context := library.llama_init_from_model(pointer, wanted):
        library.llama_decode(context, library.llama_batch_get_one((library.llama_token * 1)(0), 1))


def _load(path: Path, *, in_large_pages: bool = False, **fields: Any) -> Any:
    library = llama()
    wanted = library.llama_model_default_params()
    for name, value in fields.items():
        setattr(wanted, name, value)
    if in_large_pages:
        wanted.load_mode = library.LLAMA_LOAD_MODE_NONE
        ask = cache(large_pages.for_what_comes())  # of the first tensor, when none is written yet
        told = library.llama_progress_callback(lambda _share, _data: ask() >= 0)
        wanted.progress_callback = told
    said()
    pointer = library.llama_model_load_from_file(str(path).encode(), wanted)
    if not pointer:
        raise ModelError(f"llama.cpp cannot load {path}: {said()}. Fetch or convert the file anew.")
    return pointer


def _room_for(path: Path) -> bool:
    """Whether the weights of a file, or of all its parts, can lie in large pages of the process's own."""
    free = memory().available
    if free is None or not large_pages.offered():
        return False
    parts = re.sub(r"-\d{5}(-of-\d{5}\.gguf)$", r"-?????\1", glob.escape(path.name))
    return ROOM * sum(part.stat().st_size for part in path.parent.glob(parts)) <= free


def _text(pointer: Any, key: str) -> str | None:
    """A value of the file's metadata as text."""
    buffer = ctypes.create_string_buffer(VALUE_BYTES)
    length = llama().llama_model_meta_val_str(pointer, key.encode(), buffer, VALUE_BYTES)
    return None if length < 0 else buffer.value.decode(errors="replace")
