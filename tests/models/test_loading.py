"""Loading: GGUF files are converted once, devices and dtypes are refused in words."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes.families import save_family
from fakes.gguf_files import BLOCK, Packed, q4_k, q6_k, write_gguf
from gguf import GGMLQuantizationType
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from neuroscope.errors import ModelError, SourceError
from neuroscope.models import loading
from neuroscope.models.loading import load_model, pick_device, pick_dtype
from neuroscope.models.torch_backend import TorchBackend


@pytest.fixture(scope="module")
def gguf_file(tiny_llama: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", *tiny_llama)


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


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk of the cache .* is full"),
        (OSError(errno.EROFS, "Read-only file system"), "the cache .* cannot be written"),
        (RuntimeError("No space left on device (os error 28)"), "the disk of the cache .* is full"),
    ],
)
def test_a_cache_that_takes_no_file_is_not_blamed_on_the_model(
    refused: Exception, words: str, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unsaved:
        def save_pretrained(self, _folder: Path) -> None:
            raise refused

    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path))
    monkeypatch.setattr(loading, "_gguf_tokenizer", lambda _path: Unsaved())
    with pytest.raises(SourceError, match=rf"tiny\.gguf: {words}.*[sS]et NEUROSCOPE_CACHE"):
        loading.load_tokenizer(gguf_file)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_layers_that_name_a_window_which_is_switched_off_see_everything(family: str, tmp_path: Path) -> None:
    folder = save_family(family, tmp_path)
    ids = list(range(10, 80))
    expected = TorchBackend(*load_model(folder, device="cpu", dtype="float32"), 1).forward(ids)
    config = json.loads((folder / "config.json").read_text())
    windows = {"use_sliding_window": False, "sliding_window": 16}
    windows |= {"layer_types": ["sliding_attention"] * config["num_hidden_layers"]}
    (folder / "config.json").write_text(json.dumps(config | windows))
    found = TorchBackend(*load_model(folder, device="cpu", dtype="float32"), 1).forward(ids)
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(found.residual, expected.residual)


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [(GGMLQuantizationType.Q4_K, q4_k), (GGMLQuantizationType.Q6_K, q6_k)],
    ids=["Q4_K", "Q6_K"],
)
def test_the_weights_of_a_k_quantised_file_are_what_its_blocks_stand_for(
    kind: GGMLQuantizationType,
    blocks: Callable[[np.random.Generator, int, int], Packed],
    tiny_llama: tuple[Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    small, tokenizer = tiny_llama
    shape = {"hidden_size": BLOCK, "intermediate_size": 2 * BLOCK, "num_attention_heads": 4}
    model = type(small)(type(small.config)(**small.config.to_dict() | shape | {"head_dim": BLOCK // 4}))
    random = np.random.default_rng(0)

    def pack(name: str, array: NDArray[np.float32]) -> tuple[NDArray[Any], GGMLQuantizationType | None]:
        if array.ndim == 1:
            return array, None
        raw, weights = blocks(random, *array.shape)
        array[:] = weights  # a view of the model's own weights
        return raw, kind

    path = write_gguf(tmp_path / "tiny.gguf", model, tokenizer, pack)
    loaded, _ = load_model(path, device="cpu", dtype="float32")
    read, known = loaded.state_dict(), model.state_dict()
    assert read.keys() == known.keys()
    for name, weights in known.items():
        torch.testing.assert_close(read[name], weights, rtol=1e-6, atol=0, msg=name)
    ids = torch.tensor([[1, 5, 9, 30]])
    with torch.inference_mode():
        torch.testing.assert_close(loaded(ids).logits, model.eval()(ids).logits)


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
