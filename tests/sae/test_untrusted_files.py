"""Files that nobody vouches for: each is read, or refused in a sentence that names it; none runs, none costs memory."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import releases
from safetensors.torch import save_file

from neuroscope.errors import SAEFormatError
from neuroscope.sae.config import MAX_BYTES, read_config
from neuroscope.sae.npz import read_npz
from neuroscope.sae.safetensors import MAX_HEADER, read_safetensors
from neuroscope.sae.torch_file import read_torch

ROOT = Path(__file__).parents[2]


def test_500_damaged_releases_are_refused_by_name_or_load_whole(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("mutations.py")), str(tmp_path), "500"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["wrong"] == []
    assert found["refused"] + found["loaded"] == 500
    assert found["refused"] > 300
    assert found["grown_kib"] < 64 * 1024, "files of a few kB cost no more than that"
    assert found["seconds"] < 20, "of processor"


# safetensors


def safetensors_file(path: Path, header: object, data: bytes = b"", *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(shape: list[Any], begin: int, end: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": entry([2], 0, 8)}, "by its header the data are bytes 0 to 8, the file has 16"),
        ({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, "a and b overlap at byte 8"),
        ({"a": entry([1], 0, 4), "b": entry([2], 8, 16)}, "a and b leave a gap at byte 4"),
        ({"a": entry([4], 0, 16), "b": entry([4], 0, 16)}, "a and b overlap"),
        ({"a": entry([5], 0, 16)}, r"a of shape \[5\] and dtype F32 does not take 16 bytes"),
        ({"a": entry([1 << 40, 1 << 40], 0, 16)}, "does not take 16 bytes"),
        ({"a": entry([-2, -2], 0, 16)}, "entry for a is malformed"),
        ({"a": entry([True, 4], 0, 16)}, "entry for a is malformed"),
        ({"a": entry([4.0], 0, 16)}, "entry for a is malformed"),
        ({"a": entry([4], 16, 0)}, "does not take -16 bytes"),
        ({"a": {"dtype": "F32", "shape": [4]}}, "entry for a is malformed"),
        ({"a": entry([4], 0, 16, "F8_E4M3")}, "dtype F8_E4M3, which no SAE release uses"),
        (
            {"a": entry([2], 0, 16, "I64")},
            r"a has shape \(2,\) and dtype I64; expected 1 dimensions of floats",
        ),
        ({"a": entry([2, 2], 0, 16)}, r"a has shape \(2, 2\) and dtype F32; expected 1 dimensions"),
        ({"a": entry([0], 0, 0), "b": entry([4], 0, 16)}, r"a has shape \(0,\)"),
        ({"c": entry([4], 0, 16)}, "lacks a; it holds c"),
        ([], "not a safetensors file"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1, "a": 2}', "a key stands there twice"),
        (b'{"a": ' + b"[" * 100_000, "does not hold JSON that can be read"),
        (b"{\xff}", "does not hold JSON that can be read"),
    ],
)
def test_a_safetensors_header_that_lies_is_refused(tmp_path: Path, header: object, message: str) -> None:
    file = safetensors_file(tmp_path / "w.safetensors", header, bytes(16))
    with pytest.raises(SAEFormatError, match=message) as caught:
        read_safetensors(file, {"a": 1})
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("length", [1 << 62, 100, MAX_HEADER + 1])
def test_a_header_longer_than_the_file_or_the_limit_is_not_read(tmp_path: Path, length: int) -> None:
    file = safetensors_file(tmp_path / "w.safetensors", b"{}", length=length)
    with pytest.raises(SAEFormatError, match=f"its header claims {length} bytes; the file has 10"):
        read_safetensors(file, {"a": 1})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_float_type_of_safetensors_is_read_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.tensor([1.5, -0.0078125, 3.140625, 1e-30]).to(dtype)
    save_file({"a": values}, tmp_path / "w.safetensors")
    found = read_safetensors(tmp_path / "w.safetensors", {"a": 1})["a"]
    assert found.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    np.testing.assert_array_equal(found, values.double().numpy())


def test_values_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    save_file({"a": torch.tensor([[1.0, torch.nan], [torch.inf, 0.0]])}, tmp_path / "w.safetensors")
    with pytest.raises(SAEFormatError, match=r"a holds 2 NaN or infinite values, the first at \(0, 1\)"):
        read_safetensors(tmp_path / "w.safetensors", {"a": 2})


# torch


class Payload:
    """Unpickled carelessly, it makes a directory."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def torch_file(path: Path, pickled: bytes | None, extra: dict[str, bytes] | None = None) -> Path:
    """A torch file of one tensor whose pickle is replaced."""
    torch.save({"a": torch.zeros(4)}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if pickled is not None:
        members[next(name for name in members if name.endswith("data.pkl"))] = pickled
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | (extra or {})).items():
            archive.writestr(name, content)
    return path


def test_code_in_a_pickle_is_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    payload = pickle.dumps({"a": Payload(marker)}, protocol=2)
    pickle.loads(payload)
    assert marker.exists(), "the payload works where it is let"
    marker.rmdir()

    file = torch_file(tmp_path / "w.pt", payload)
    with pytest.raises(
        SAEFormatError, match=r"not only weights: its pickle asks for posix\.mkdir.*not run"
    ) as caught:
        read_torch(file, {"a": 1})
    assert str(file) in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_no_protocol_lets_code_in(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    file = torch_file(tmp_path / "w.pt", pickle.dumps({"a": Payload(marker)}, protocol=protocol))
    with pytest.raises(SAEFormatError):
        read_torch(file, {"a": 1})
    (tmp_path / "bare.pt").write_bytes(pickle.dumps({"a": Payload(marker)}, protocol=protocol))
    with pytest.raises(SAEFormatError, match="not a torch zip file"):
        read_torch(tmp_path / "bare.pt", {"a": 1})
    assert not marker.exists()


def test_a_pickle_that_only_allocates_is_refused_too(tmp_path: Path) -> None:
    """bytearray(10**11) is on torch's own list of what weights_only may call."""
    pickled = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05" + (10**11).to_bytes(5, "little") + b"\x85R."
    with pytest.raises(SAEFormatError, match=r"asks for builtins\.bytearray"):
        read_torch(torch_file(tmp_path / "w.pt", pickled), {"a": 1})


def test_a_tensor_of_more_values_than_are_stored_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1).expand(1 << 40)}, tmp_path / "w.pt")
    with pytest.raises(SAEFormatError, match="a has more values than are stored"):
        read_torch(tmp_path / "w.pt", {"a": 1})


def test_a_storage_larger_than_its_record_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(16)}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as archive:
        pickled = archive.read("w/data.pkl").replace(b"K\x10", b"M\x00\x40")
    with pytest.raises(SAEFormatError, match="does not match expected size"):
        read_torch(torch_file(tmp_path / "w.pt", pickled), {"a": 1})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([torch.zeros(4)], "does not hold named tensors"),
        ({1: torch.zeros(4)}, "does not hold named tensors"),
        ({"b": torch.zeros(4)}, "lacks a; it holds b"),
        ({"a": "text"}, "a is str, not a tensor"),
        ({"a": torch.zeros(2, 2)}, r"a has shape \(2, 2\) and dtype float32; expected 1 dimensions"),
        ({"a": torch.zeros(4, dtype=torch.int64)}, "dtype int64"),
        ({"a": torch.full((4,), torch.nan)}, "a holds 4 NaN"),
    ],
)
def test_a_torch_file_of_other_values_is_refused(tmp_path: Path, values: object, message: str) -> None:
    torch.save(values, tmp_path / "w.pt")
    with pytest.raises(SAEFormatError, match=message):
        read_torch(tmp_path / "w.pt", {"a": 1})


def test_a_compressed_or_doubled_record_is_refused(tmp_path: Path) -> None:
    file = torch_file(tmp_path / "w.pt", None)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data/9", bytes(1 << 20))
    with pytest.raises(SAEFormatError, match="compressed record, which torch never writes"):
        read_torch(file, {"a": 1})
    file = torch_file(tmp_path / "w.pt", None)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("w/data/0", bytes(16))
    with pytest.raises(SAEFormatError, match="holds a record twice"):
        read_torch(file, {"a": 1})


def test_an_npz_file_is_no_torch_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", a=np.zeros(4))
    with pytest.raises(SAEFormatError, match="not one that torch saved"):
        read_torch(tmp_path / "w.npz", {"a": 1})


# npz


def npz_member(path: Path, header: bytes, data: bytes, version: bytes = b"\x01\x00") -> Path:
    size = 2 if version == b"\x01\x00" else 4
    member = b"\x93NUMPY" + version + len(header).to_bytes(size, "little") + header + data
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", member)
    return path


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}" + b" " * 2000, "claims 2055 bytes"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}", r"a has shape \(-1, -4\)"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': ('4',)}", r"a has shape \('4',\)"),
        (b"{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}", "dtype <f16"),
        (b"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (4,)}", "values of other types"),
        (b"{'descr': '<f4', 'fortran_order': False}", "other keys than descr"),
        (b"(" * 900, "cannot be parsed"),
        (b"__import__('os').getpid()", "damaged"),
    ],
)
def test_an_npy_header_that_lies_is_refused(tmp_path: Path, header: bytes, message: str) -> None:
    with pytest.raises(SAEFormatError, match=message):
        read_npz(npz_member(tmp_path / "w.npz", header, bytes(16)), {"a": 1})


def test_a_bias_of_zeros_packs_to_nothing_and_is_no_bomb(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "w.npz", a=np.zeros(1 << 17, np.float32))
    assert read_npz(tmp_path / "w.npz", {"a": 1})["a"].shape == (1 << 17,)


# JSON


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not hold JSON"),
        (b"[]", "does not hold a JSON object"),
        (b"[" * 500_000, "does not hold JSON"),
        (b'{"k": ' + b"9" * 5000 + b"}", "does not hold JSON"),
        (b'{"k": 1}' + b" " * MAX_BYTES, f"longer than {MAX_BYTES} bytes"),
        (b'{"k": 1, "k": 2}', "a key stands there twice"),
        (b"<!DOCTYPE html>", "does not hold JSON"),
    ],
)
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "cfg.json").write_bytes(content)
    with pytest.raises(SAEFormatError, match=message) as caught:
        read_config(tmp_path / "cfg.json")
    assert "cfg.json" in str(caught.value)


def test_values_of_another_type_are_refused_by_key(tmp_path: Path) -> None:
    (tmp_path / "cfg.json").write_text(
        '{"trainer": {"k": true, "name": 3, "flag": 0, "far": 1e999, "less": -1, "none": null}}'
    )
    trainer = read_config(tmp_path / "cfg.json").section("trainer")
    for read, message in [
        (lambda: trainer.whole("k"), r"trainer\.k is true, must be a whole number"),
        (lambda: trainer.whole("less"), "less is -1, must be a whole number of 0 or more"),
        (lambda: trainer.text("name"), "name is 3, must be a text"),
        (lambda: trainer.flag("flag"), "flag is 0, must be true or false"),
        (lambda: trainer.number("far"), "far is Infinity, must be a finite number"),
        (lambda: trainer.text("none"), "none is missing, must be a text"),
        (lambda: trainer.section("k"), "k is true, must be an object"),
    ]:
        with pytest.raises(SAEFormatError, match=message):
            read()


# what is not even the container


@pytest.mark.parametrize("read", [read_npz, read_safetensors, read_torch])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<!doctype html><title>Sign in", "is an HTML page.*Download it again, logged in"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "is a Git LFS pointer.*git lfs pull"),
        (b"GGUF\x03\x00\x00\x00" + bytes(100), "is a GGUF model, not"),
        (b"\x80\x02}q\x00.", "is a bare Python pickle, not"),
        (b"\x93NUMPY\x01\x00", "is a single NumPy array, not"),
        (b"hello", "is not an? (NPZ|safetensors|torch zip) file"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(
    tmp_path: Path, read: Any, content: bytes, message: str
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(content)
    with pytest.raises(SAEFormatError, match=message) as caught:
        read(file, {"a": 1})
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("read", [read_npz, read_safetensors, read_torch])
def test_a_missing_file_and_a_folder_are_named(tmp_path: Path, read: Any) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(SAEFormatError, match=f"{path} cannot be read"):
            read(path, {"a": 1})


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    readers = {
        releases.gemma_scope(tmp_path / "npz", 4, 8, 0): (read_npz, {"W_enc": 2}),
        releases.gemma_scope_2(tmp_path / "st", 4, 8, 0) / "params.safetensors": (
            read_safetensors,
            {"w_enc": 2},
        ),
        releases.goodfire(tmp_path / "pt", 4, 8, 0): (read_torch, {"encoder_linear.weight": 2}),
    }
    for file, (read, wanted) in readers.items():
        whole = file.read_bytes()
        read(file, wanted)
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            cut = tmp_path / "cut"
            cut.write_bytes(whole[:at])
            with pytest.raises(SAEFormatError):
                read(cut, wanted)
        shutil.copy(file, tmp_path / "again")
        read(tmp_path / "again", wanted)
