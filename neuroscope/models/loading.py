"""From a model's files on disk to a model and tokenizer in memory: device, dtype, GGUF.

Where files come from is `sources`' business; what is done with the model is the backend's.
"""

from __future__ import annotations

import copy
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from neuroscope.errors import ModelError, NeuroscopeError
from neuroscope.models.file_key import file_key
from neuroscope.models.quantization import bits_of, pack_linear_layers
from neuroscope.sources import cache_dir, replace_directory_atomically
from neuroscope.sources.index_errors import disk_error

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DIGIT_SPLITTERS = {"smollm", "starcoder", "refact", "codeshell"}  # `tokenizer.ggml.pre`: one token per digit


def pick_device(name: str = "auto") -> torch.device:
    """`auto` prefers CUDA, then MPS, then the CPU. Raises ModelError for a device that is not there."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"Device {name!r} cannot be used: {reason}. Use auto, cpu, cuda or mps.") from error
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on CUDA and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in DTYPES:
        raise ModelError(f"dtype {name!r} is not known. Use auto, {', '.join(DTYPES)}.")
    return DTYPES[name]


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a model folder or GGUF file. Raises ModelError, SourceError for a cache that takes no file."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(_tokenizer_directory(path))
    except NeuroscopeError:
        raise
    except Exception as error:  # the Rust library raises nothing more exact for a file it cannot read
        raise ModelError(f"No tokenizer can be loaded from {path}: {_said(error)}") from error


def load_model(
    path: Path, *, device: str = "auto", dtype: str = "auto", quantization: str = "none"
) -> tuple[Any, Any]:
    """A causal language model in evaluation mode, with its tokenizer.

    `path` is a folder in transformers' layout or a GGUF file. Raises ModelError for what cannot be loaded, and for a
    folder that lacks weights: transformers would put random ones in their place and go on; SourceError for a cache
    that takes no file.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    bits = bits_of(quantization)
    directory = _model_directory(path)
    target = pick_device(device)
    try:
        config = AutoConfig.from_pretrained(directory)
        model, found = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=pick_dtype(dtype, target),
            attn_implementation=_attention(config),
            output_loading_info=True,
            **({"config": config} if _see_everything(config) else {}),
        )
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        raise ModelError(f"No causal language model can be loaded from {path}: {_said(error)}") from error
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise ModelError(
            f"The weights at {path} have other shapes than its config.json says. Fetch the model anew."
        ) from error
    if missing := sorted(found["missing_keys"]):
        raise ModelError(
            f"{path} lacks {len(missing)} of its weights, among them {missing[0]}: the download is not whole, or "
            f"the weights are not those of a {type(model).__name__}. Fetch the model anew."
        )
    tokenizer = load_tokenizer(path)
    if bits:
        pack_linear_layers(model, bits, target)
    return model.to(target).eval().requires_grad_(False), tokenizer


def _see_everything(config: Any) -> bool:
    """Whether layers named a sliding window that the same config switches off (Qwen 2 and 3); now they name none.

    Their attention sees everything, but transformers makes masks and caches by the names, and fails.
    """
    text = config.get_text_config(decoder=True)
    named = getattr(text, "layer_types", None) or []
    if getattr(text, "sliding_window", 0) is not None or "sliding_attention" not in named:
        return False
    text.layer_types = [name.replace("sliding_attention", "full_attention") for name in named]
    return True


def _attention(config: Any) -> str:
    """`eager` where the scores are capped, since faster kernels leave the cap out, or the family has no other."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    caps = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    family = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return "sdpa" if not caps and getattr(family, "_supports_sdpa", True) else "eager"


def _said(error: Exception) -> str:
    """The error's own words, or its name where it only names a key."""
    return repr(error) if isinstance(error, KeyError) else str(error)


def _model_directory(path: Path) -> Path:
    """`path` itself, or for a GGUF file its conversion to safetensors in the cache (slow, but once)."""
    if path.suffix != ".gguf":
        return path
    directory = cache_dir() / "converted" / f"{path.stem}-{file_key(path)}"
    if not (directory / "converted.json").exists():
        _make(directory, path, _convert_gguf)
    return directory


def _tokenizer_directory(path: Path) -> Path:
    """As `_model_directory`; where a GGUF file's weights were never converted, its tokenizer alone: seconds."""
    if path.suffix != ".gguf":
        return path
    directory = cache_dir() / "converted" / f"{path.stem}-{file_key(path)}"
    if (directory / "converted.json").exists():
        return directory
    directory = directory.with_name(f"{directory.name}-tokenizer")
    if not (directory / "tokenizer.json").exists():
        _make(directory, path, lambda path, temporary: _gguf_tokenizer(path).save_pretrained(temporary))
    return directory


def _make(directory: Path, path: Path, write: Callable[[Path, Path], object]) -> None:
    """What `write` makes of `path`, in the cache. Raises SourceError where the disk of the cache refuses it."""
    try:
        with replace_directory_atomically(directory) as temporary:
            write(path, temporary)
    except NeuroscopeError:
        raise
    except OSError as error:
        raise disk_error(error, str(path), cache_dir()) from error
    except Exception as error:  # libraries in Rust say what the system said in words alone
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise disk_error(OSError(int(number[1]), str(error)), str(path), cache_dir()) from error


def _gguf_tokenizer(path: Path) -> Any:
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        splitter = GGUFReader(path).fields["tokenizer.ggml.pre"].contents()
    except (OSError, ValueError, LookupError, struct.error) as error:
        raise ModelError(f"{path} cannot be read as a GGUF model: {error}") from error
    if splitter in DIGIT_SPLITTERS:
        # transformers reads every GGUF byte-pair tokenizer as GPT-2's, which keeps a space with the digits after it.
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
        )
    return tokenizer


def _convert_gguf(path: Path, directory: Path) -> None:
    from transformers import AutoModelForCausalLM

    try:
        read = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    except (OSError, ValueError, LookupError, struct.error) as error:
        raise ModelError(f"{path} cannot be read as a GGUF model: {error}") from error
    # The weights are dequantised by now, but transformers refuses to save what it still calls quantised.
    config = copy.deepcopy(read.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(directory)
    _gguf_tokenizer(path).save_pretrained(directory)
    (directory / "converted.json").write_text(json.dumps({"source": path.name, "dtype": "float32"}) + "\n")
