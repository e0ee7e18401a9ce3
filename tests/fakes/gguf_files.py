"""GGUF files of tiny Llamas, written by gguf's own writer as llama.cpp's converter would, quantised blocks included.

The blocks of `q4_k` and `q6_k` are packed here bit by bit from numbers chosen first, so that what they stand for is
known without any decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

BLOCK = 256
"""Weights of a block of every K-quant."""

Packed = tuple[NDArray[np.uint8], NDArray[np.float32]]
"""Blocks as bytes [rows, bytes], and the weights that they stand for [rows, columns]."""
Packer = Callable[[str, NDArray[np.float32]], tuple[NDArray[Any], GGMLQuantizationType | None]]
"""What is written for a tensor, by its name in GGUF."""


def as_it_is(_name: str, array: NDArray[np.float32]) -> tuple[NDArray[Any], GGMLQuantizationType | None]:
    return array, None


def write_gguf(path: Path, model: Any, tokenizer: Any, pack: Packer = as_it_is) -> Path:
    """`model`, a Llama, and its tokenizer in one file."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer, config.vocab_size)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        called = names.get_name(name, (".weight",))
        array, kind = pack(called, tensor.float().numpy())
        for part, count in heads.items():
            if part in name:  # llama.cpp keeps rotary pairs side by side; rows are packed one by one
                array = array.reshape(count, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(called, np.ascontiguousarray(array), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any, tokenizer: Any, rows: int) -> None:
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    if "th" not in tokens:  # transformers takes a vocabulary without merges for SentencePiece's
        tokens[tokens.index("ÿ")] = "th"
    tokens += [
        f"[PAD{number}]" for number in range(len(tokens), rows)
    ]  # rows without a token, as converters do
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)


def q4_k(random: np.random.Generator, rows: int, columns: int) -> Packed:
    """Blocks of Q4_K: weight = d * scale * q - dmin * minimum, scale and minimum (6 bits) for every 32 weights."""
    n = rows * columns // BLOCK
    d, dmin = (random.uniform(1e-4, 1e-3, n).astype(np.float16) for _ in range(2))
    scale, minimum = (random.integers(0, 64, (n, 8)) for _ in range(2))
    q = random.integers(0, 16, (n, 8, 32))
    steps = d.astype(np.float32)[:, None] * scale.astype(np.float32)
    floors = dmin.astype(np.float32)[:, None] * minimum.astype(np.float32)
    weights = steps[..., None] * q.astype(np.float32) - floors[..., None]
    first, second = slice(0, 4), slice(4, 8)
    scales = np.concatenate(
        [
            scale[:, first] | (scale[:, second] >> 4 << 6),
            minimum[:, first] | (minimum[:, second] >> 4 << 6),
            (scale[:, second] & 15) | ((minimum[:, second] & 15) << 4),
        ],
        axis=1,
    )
    pairs = q.reshape(n, 4, 2, 32)  # a byte holds a weight of one 32, and below it that of the 32 before
    nibbles = (pairs[:, :, 0] | (pairs[:, :, 1] << 4)).reshape(n, -1)
    return _rows(rows, [d, dmin, scales, nibbles]), weights.reshape(rows, columns)


def q6_k(random: np.random.Generator, rows: int, columns: int) -> Packed:
    """Blocks of Q6_K: weight = d * scale * (q - 32), a signed scale (8 bits) for every 16 weights."""
    n = rows * columns // BLOCK
    d = random.uniform(1e-5, 1e-4, n).astype(np.float16)
    scale = random.integers(-127, 128, (n, 16)).astype(np.int8)
    q = random.integers(0, 64, (n, 2, 4, 32))  # two halves of four times 32
    steps = d.astype(np.float32)[:, None] * scale.astype(np.float32)
    weights = steps[..., None] * (q.reshape(n, 16, 16) - 32).astype(np.float32)
    low, high = q & 15, q >> 4
    nibbles = low[:, :, :2] | (low[:, :, 2:] << 4)
    pairs = high[:, :, 0] | (high[:, :, 1] << 2) | (high[:, :, 2] << 4) | (high[:, :, 3] << 6)
    return _rows(rows, [nibbles, pairs, scale, d]), weights.reshape(rows, columns)


def _rows(rows: int, parts: list[NDArray[Any]]) -> NDArray[np.uint8]:
    as_bytes = [
        (part if part.dtype.itemsize < 4 else part.astype(np.uint8)).reshape(len(part), -1).view(np.uint8)
        for part in parts
    ]
    return np.concatenate(as_bytes, axis=1).reshape(rows, -1)
