"""Loading: GGUF files are converted once, devices and dtypes are refused in words."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from neuroscope.errors import ModelError
from neuroscope.models.loading import load_model, pick_device, pick_dtype


@pytest.fixture(scope="module")
def gguf_file(tiny_llama: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Llama written by gguf's own writer, as llama.cpp's converter would."""
    model, tokenizer = tiny_llama
    config = model.config
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
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
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    unused = next(i for i, token in enumerate(tokens) if token == "ÿ")
    tokens[unused] = "th"  # transformers takes a vocabulary without merges for SentencePiece's
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        array = tensor.float().numpy()
        for part, count in heads.items():
            if part in name:  # llama.cpp keeps rotary pairs side by side
                array = array.reshape(count, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_gives_the_same_logits_and_is_converted_once(
    gguf_file: Path, tiny_llama: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path))
    model, tokenizer = load_model(gguf_file, device="cpu", dtype="float32")
    ids = torch.tensor([[1, 5, 9, 30]])
    with torch.inference_mode():
        torch.testing.assert_close(model(ids).logits, tiny_llama[0](ids).logits)

    converted = {path: os.stat(path).st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    load_model(gguf_file, device="cpu", dtype="float32")
    assert {path: os.stat(path).st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == converted
    assert tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  12")[-1][0] == "2"


def test_a_file_that_is_not_gguf_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(ModelError, match=r"bad\.gguf cannot be read as a GGUF model"):
        load_model(tmp_path / "bad.gguf", device="cpu")
    assert not list((tmp_path / "cache").rglob("converted.json"))


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=str(tmp_path)):
        load_model(tmp_path, device="cpu")


def drop_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def reshape_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"] = torch.ones(5, 5)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def cut_the_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20_000])


def empty_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def spoil_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"added_tokens": [], "model": {"type": "Other"}}')


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_a_weight, r"lacks 1 of its weights, among them model\.layers\.1\.mlp\.up_proj\.weight"),
        (reshape_a_weight, "have other shapes than its config.json says"),
        (cut_the_weights, "No causal language model can be loaded from .*metadata"),
        (empty_the_tokenizer, "No tokenizer can be loaded from .*added_tokens"),
        (spoil_the_tokenizer, "No tokenizer can be loaded from "),
    ],
)
def test_a_damaged_folder_is_refused_and_never_run_with_random_weights(
    damage: Callable[[Path], None], words: str, tiny_llama_path: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_llama_path, tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelError, match=words) as refused:
        load_model(folder, device="cpu")
    assert str(folder) in str(refused.value)


def test_an_unknown_device_and_dtype_are_refused_with_those_known() -> None:
    with pytest.raises(ModelError, match="auto, cpu, cuda or mps"):
        pick_device("gpu")
    with pytest.raises(ModelError, match="float32, bfloat16, float16"):
        pick_dtype("int3", torch.device("cpu"))


def test_auto_is_float32_on_the_cpu() -> None:
    assert pick_dtype("auto", torch.device("cpu")) == torch.float32
