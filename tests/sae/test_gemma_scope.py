"""Reading `params.npz`: the right numbers from a good file, a sentence from a bad one."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from neuroscope.errors import SAEFormatError
from neuroscope.sae import load_sae
from neuroscope.sae.formats import gemma_scope

SHIPPED = Path(__file__).parents[2] / "workflow/resources/smollm2-135m-layer20-4k/params.npz"


def arrays(**changes: object) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    good = {
        "W_enc": rng.normal(size=(4, 8)).astype(np.float32),
        "b_enc": rng.normal(size=8).astype(np.float32),
        "threshold": rng.random(8).astype(np.float32),
        "W_dec": rng.normal(size=(8, 4)).astype(np.float32),
        "b_dec": rng.normal(size=4).astype(np.float32),
    }
    return {name: array for name, array in {**good, **changes}.items() if array is not None}  # type: ignore[misc]


def written(path: Path, **changes: object) -> Path:
    file = path / "params.npz"
    np.savez(file, **arrays(**changes))
    return file


def test_sae_load_weights() -> None:
    sae = load_sae(SHIPPED, device="cpu")
    assert tuple(sae.W_enc.shape) == (576, 4096)
    assert tuple(sae.b_enc.shape) == (4096,)
    assert tuple(sae.threshold.shape) == (4096,)
    if os.environ.get("NEUROSCOPE_INTEGRATION_TESTS") == "1":
        from neuroscope import settings, sources

        pairing = settings.load("gemma-2-2b-it").pairing
        gemma = load_sae(sources.resolve(pairing.sae.uri).path, device="cpu", decoder=False)
        assert tuple(gemma.W_enc.shape) == (2304, 16384)
        assert tuple(gemma.b_enc.shape) == tuple(gemma.threshold.shape) == (16384,)


def test_arrays_come_out_as_they_went_in(tmp_path: Path) -> None:
    sae = load_sae(written(tmp_path), device="cpu")
    for name, array in arrays().items():
        np.testing.assert_array_equal(getattr(sae, name).numpy(), array)


def test_a_compressed_file_and_one_in_fortran_order_read_the_same(tmp_path: Path) -> None:
    file = tmp_path / "params.npz"
    np.savez_compressed(file, **{name: np.asfortranarray(array) for name, array in arrays().items()})
    np.testing.assert_array_equal(load_sae(file, device="cpu").W_enc.numpy(), arrays()["W_enc"])


def test_a_folder_stands_for_its_params_npz(tmp_path: Path) -> None:
    written(tmp_path)
    assert load_sae(tmp_path, device="cpu").d_sae == 8


def test_the_encoder_alone_can_be_loaded(tmp_path: Path) -> None:
    sae = load_sae(written(tmp_path, W_dec=None, b_dec=None), device="cpu", decoder=False)
    assert sae.W_dec is None


def test_what_save_writes_load_reads(tmp_path: Path) -> None:
    sae = load_sae(written(tmp_path), device="cpu")
    gemma_scope.save(sae, tmp_path / "again.npz")
    again = load_sae(tmp_path / "again.npz", device="cpu")
    assert all(np.array_equal(getattr(again, n), getattr(sae, n)) for n in arrays())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": None}, "lacks threshold"),
        ({"W_enc": np.zeros((4, 8), np.int64)}, "W_enc has shape"),
        ({"W_enc": np.zeros((4, 8, 1), np.float32)}, "W_enc has shape"),
        ({"W_enc": np.zeros((0, 8), np.float32)}, "W_enc has shape"),
        ({"b_dec": np.zeros(5, np.float32)}, "b_dec has shape"),
        (
            {"b_enc": np.array([np.nan] + [0.0] * 7, np.float32)},
            r"1 NaN or infinite values, the first at \(0,\)",
        ),
        (
            {"threshold": np.array([0.0, -1.0] + [0.0] * 6, np.float32)},
            "1 values of threshold are negative, the first at feature 1",
        ),
    ],
)
def test_wrong_arrays_are_refused_by_name(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(SAEFormatError, match=message) as caught:
        load_sae(written(tmp_path, **changes), device="cpu")
    assert "params.npz" in str(caught.value) or "W_enc" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS pointer"),
        (b"PK\x03\x04 and nothing else", "damaged"),
        (pickle.dumps({"W_enc": 1}), "not an NPZ file"),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "params.npz"
    file.write_bytes(content)
    with pytest.raises(SAEFormatError, match=message):
        load_sae(file, device="cpu")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SAEFormatError, match=r"nowhere\.npz cannot be read"):
        load_sae(tmp_path / "nowhere.npz", device="cpu")


def test_a_truncated_file_is_damaged_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    for cut in range(4, len(whole), max(1, len(whole) // 23)):
        file = tmp_path / "cut.npz"
        file.write_bytes(whole[:cut])
        with pytest.raises(SAEFormatError):
            load_sae(file, device="cpu")


def test_flipped_bytes_give_an_error_or_the_same_shapes_never_anything_else(tmp_path: Path) -> None:
    whole = bytearray(written(tmp_path).read_bytes())
    rng = np.random.default_rng(0)
    file = tmp_path / "mutated.npz"
    shapes = set()
    for _ in range(500):
        mutated = bytearray(whole)
        for at in rng.integers(0, len(whole), 3):
            mutated[at] = rng.integers(0, 256)
        file.write_bytes(mutated)
        message = f"{file}: "
        try:
            shapes.add(tuple(load_sae(file, device="cpu").W_enc.shape))
        except SAEFormatError as error:
            message = str(error)
        assert "mutated.npz" in message
    assert shapes <= {(4, 8)}


def test_a_header_that_claims_gigabytes_is_refused_before_they_are_allocated(tmp_path: Path) -> None:
    file = tmp_path / "forged.npz"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (60000, 60000), }"
    header += b" " * (64 - (len(header) + 11) % 64) + b"\n"
    member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("W_enc", "b_enc", "threshold"):
            archive.writestr(f"{name}.npy", member)
    with pytest.raises(SAEFormatError, match="should take 14400000000 bytes"):
        load_sae(file, device="cpu", decoder=False)


def test_a_member_that_unpacks_to_far_more_than_it_takes_is_a_bomb(tmp_path: Path) -> None:
    file = tmp_path / "bomb.npz"
    np.savez_compressed(file, **arrays(W_enc=np.zeros((1000, 8000), np.float32)))
    with pytest.raises(SAEFormatError, match="W_enc claims"):
        load_sae(file, device="cpu", decoder=False)


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    file = tmp_path / "params.npz"
    np.savez(file, **arrays(b_enc=np.array([print] * 8, dtype=object)))
    with pytest.raises(SAEFormatError, match="b_enc has shape"):
        load_sae(file, device="cpu")


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("W_enc.npy", b"")
    with pytest.raises(SAEFormatError, match="twice"):
        load_sae(file, device="cpu")


def test_an_unknown_format_lists_those_known(tmp_path: Path) -> None:
    with pytest.raises(SAEFormatError, match="Accepted: gemma_scope"):
        load_sae(tmp_path, format="saelens5")
