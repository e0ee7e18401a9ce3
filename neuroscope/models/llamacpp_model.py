"""A GGUF file opened by llama.cpp: the weights and what the file says of itself.

llama.cpp maps a file into memory by itself, in pages of 4 kB. Here the weights are read into large pages where there is
room: a token takes a twentieth to a tenth less.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from neuroscope import large_pages
from neuroscope.errors import ModelError
from neuroscope.models.gguf_types import FILE_TYPES
from neuroscope.models.llamacpp_context import CONTEXT, new_context
from neuroscope.models.llamacpp_library import llama, said
from neuroscope.models.llamacpp_trial import must_survive

VALUE_BYTES = 256
POLL_S = 0.1
"""A signal that another thread was given, or after which the system goes on waiting, is seen by then."""


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
    pointer = _load(path, n_gpu_layers=-1 if gpu and library.llama_supports_gpu_offload() else 0)
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
    """Opens a file as it will be run, and runs two tokens, to see whether the process lives.

    What fails in words is said by who opens it.
    """
    library = llama()
    try:
        pointer = _load(Path(name))
    except ModelError:
        return
    positions = min(library.llama_model_n_ctx_train(pointer), CONTEXT)
    if context := new_context(pointer, positions, threads=1):
        for count in (min(2, positions), 1):
            tokens = (library.llama_token * count)()
            library.llama_decode(context, library.llama_batch_get_one(tokens, count))


def _load(path: Path, *, n_gpu_layers: int = 0, vocab_only: bool = False) -> Any:
    library = llama()
    wanted = library.llama_model_default_params()
    wanted.n_gpu_layers, wanted.vocab_only = n_gpu_layers, vocab_only
    ask: Callable[[], int] = int
    if not n_gpu_layers and not vocab_only and large_pages.room_for(_bytes(path)):
        wanted.load_mode = library.LLAMA_LOAD_MODE_NONE
        ask = cache(large_pages.for_what_comes())  # before the first tensor, when none is written yet
    stopped = threading.Event()
    go_on = library.llama_progress_callback(lambda _share, _data: ask() >= 0 and not stopped.is_set())
    wanted.progress_callback = go_on
    said()
    name = os.fsencode(path)
    pointer = _away_from_signals(lambda: library.llama_model_load_from_file(name, wanted), stopped)
    if not pointer:
        raise ModelError(f"llama.cpp cannot load {path}: {said()}. Fetch or convert the file anew.")
    return pointer


def _away_from_signals(load: Callable[[], Any], stopped: threading.Event) -> Any:
    """The model that `load` gives, or None; when Ctrl-C comes, `stopped` is set, for `load` to end early.

    Python handles signals in the main thread, wherever it gets to run there: called by C, what is raised is lost.
    """
    if threading.current_thread() is not threading.main_thread():
        return load()
    coming: Future[Any] = Future()

    def work() -> None:
        try:
            model = load()
        except BaseException as error:  # for the thread that waits
            with suppress(InvalidStateError):
                coming.set_exception(error)
            return
        try:
            coming.set_result(model)
        except InvalidStateError:  # nobody waits any more
            _free(model)

    # Ctrl-C may come at any line from here on, so that the model belongs to whoever of the two threads comes second.
    thread = threading.Thread(target=work, name="llama.cpp-load")
    try:
        thread.start()
        while not coming.done():
            wait([coming], POLL_S)
        return coming.result()
    except BaseException:
        stopped.set()
        if not coming.cancel() and not coming.exception():
            _free(coming.result())
        if thread.is_alive():
            thread.join()
        raise


def _free(model: Any) -> None:
    if model:
        llama().llama_model_free(model)


def _bytes(path: Path) -> int:
    """Of a file, or of all its parts."""
    parts = re.sub(r"-\d{5}(-of-\d{5}\.gguf)$", r"-?????\1", glob.escape(path.name))
    return max(path.stat().st_size, sum(part.stat().st_size for part in path.parent.glob(parts)))


def _text(pointer: Any, key: str) -> str | None:
    """A value of the file's metadata as text."""
    buffer = ctypes.create_string_buffer(VALUE_BYTES)
    length = llama().llama_model_meta_val_str(pointer, key.encode(), buffer, VALUE_BYTES)
    return None if length < 0 else buffer.value.decode(errors="replace")
