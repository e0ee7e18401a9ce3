"""Which GGUF file llama.cpp is given: the model's own, or one made from it in another number type, once.

Made from a file that is quantised already, the second rounding adds to the first: a file made from full weights by
its publisher is better, and `neuroscope verify` says by how much the features change.
"""

from __future__ import annotations

import glob
import logging
from pathlib import Path

import torch

from neuroscope.errors import ModelError
from neuroscope.models.file_key import file_key
from neuroscope.models.gguf_types import FILE_TYPES
from neuroscope.models.llamacpp_library import llama, said
from neuroscope.models.llamacpp_model import declared_type
from neuroscope.sources import cache_dir, replace_atomically
from neuroscope.sources.files import held
from neuroscope.sources.index_errors import disk_error

log = logging.getLogger(__name__)

MB = 1_000_000
WHOLE = ("f32", "f16", "bf16", "gguf")
"""Types whose weights were not rounded before, or not as far as the file says."""


def gguf_file(path: Path, quantization: str = "none") -> Path:
    """The file to run for the model at `path`: itself for `none` and for its own type, else one in the cache.

    Raises ModelError for what is no GGUF file, and where none of that type can be made from it; SourceError for a
    cache that cannot be written.
    """
    if path.suffix != ".gguf":
        raise ModelError(
            f"{path} is no GGUF file, and the backend llamacpp reads nothing else. "
            "Give one with --model PATH.gguf, or use --backend torch."
        )
    own = declared_type(path)
    if quantization in ("none", own):
        return path
    made = cache_dir() / "requantised" / f"{path.stem}-{file_key(path)}-{quantization}.gguf"
    if not made.exists():
        try:
            _make_once(path, own, made, quantization)
        except OSError as error:
            raise disk_error(error, str(path), cache_dir()) from error
    return made


def _make_once(path: Path, own: str, made: Path, quantization: str) -> None:
    with held(made.with_name(f".{made.name}.lock")):
        if made.exists():  # another process made it meanwhile
            return
        for torn in made.parent.glob(f".{glob.escape(made.name)}.*.tmp"):  # of a run that was killed
            torn.unlink(missing_ok=True)
        _requantise(path, own, made, quantization)


def _requantise(path: Path, own: str, made: Path, quantization: str) -> None:
    again = "" if own in WHOLE else " The weights are rounded twice: a file made from full weights is better."
    log.warning(
        "Making %s of %s (%s, %d MB), once.%s", quantization, path.name, own, path.stat().st_size / MB, again
    )
    library = llama()
    wanted = library.llama_model_quantize_default_params()
    wanted.ftype, wanted.allow_requantize = FILE_TYPES[quantization], True
    wanted.nthread = torch.get_num_threads()
    said()
    with replace_atomically(made) as temporary:
        status = library.llama_model_quantize(str(path).encode(), str(temporary).encode(), wanted)
        if status != 0:
            raise ModelError(
                f"llama.cpp cannot make {quantization} of {path}: {said()}. "
                "Choose another type, or quantization none for the file as it is."
            )
    log.warning("Made it: %d MB.", made.stat().st_size / MB)
