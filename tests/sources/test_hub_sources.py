"""Sources on the hub: the real client against a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path

import pytest
from fakes.hub import COMMIT
from fakes.hub_machine import MODEL, SAE, WEIGHTS, Machine, unused_port

WITHOUT_XET = """
import importlib.metadata as metadata
installed = metadata.version
def version(name):
    if name in ("hf_xet", "hf-xet"):
        raise metadata.PackageNotFoundError(name)
    return installed(name)
metadata.version = version
"""


def test_a_file_comes_through_the_redirect_with_its_commit_and_hash(machine: Machine) -> None:
    found = machine.resolve(SAE)
    assert Path(found["path"]).read_bytes() == WEIGHTS
    assert found["revision"] == COMMIT
    assert found["sha256"] == hashlib.sha256(WEIGHTS).hexdigest()
    assert Path(found["path"]).is_relative_to(machine.home / "hf")


def test_a_models_folder_holds_its_weights_once(machine: Machine) -> None:
    folder = Path(machine.resolve("hf://org/model")["path"])
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_older_weights_are_taken_when_there_are_no_others(machine: Machine) -> None:
    machine.hub.add("org/old", {name: MODEL[name] for name in ("config.json", "pytorch_model.bin")})
    folder = Path(machine.resolve("hf://org/old")["path"])
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "pytorch_model.bin"]


def test_a_folder_of_a_data_set_is_fetched_alone(machine: Machine) -> None:
    files = {"raw/train.parquet": b"PAR1train", "raw/test.parquet": b"PAR1test", "other/x.parquet": b"PAR1x"}
    machine.hub.add("org/texts", files, dataset=True)
    folder = Path(machine.resolve("hf://datasets/org/texts/raw/")["path"])
    assert sorted(path.name for path in folder.iterdir()) == ["test.parquet", "train.parquet"]
    assert [path.name for path in folder.parent.iterdir()] == ["raw"]


@pytest.mark.parametrize("uri", [SAE, "hf://org/model"])
def test_a_warm_cache_needs_no_network(machine: Machine, uri: str) -> None:
    first = machine.resolve(uri)
    machine.hub.requests.clear()
    assert machine.resolve(uri, HF_HUB_OFFLINE="1") == first
    assert machine.hub.requests == []
    assert machine.resolve(uri, HF_ENDPOINT=f"http://127.0.0.1:{unused_port()}") == first


def test_a_cut_connection_resumes_where_it_was(machine: Machine) -> None:
    machine.hub.fault("params.npz", "cut", at=65_000)
    small_chunks = "from huggingface_hub import constants; constants.DOWNLOAD_CHUNK_SIZE = 10_000"
    assert Path(machine.resolve(SAE, prelude=small_chunks)["path"]).read_bytes() == WEIGHTS
    assert machine.hub.asked("/cdn/")[-1].headers["Range"] == "bytes=60000-"


def test_a_large_file_that_is_cut_asks_only_for_what_is_missing(machine: Machine) -> None:
    content = bytes(30_000_000)
    machine.hub.add("org/large", {"params.npz": content})
    machine.hub.fault("params.npz", "cut", at=25_000_000)
    assert Path(machine.resolve("hf://org/large/params.npz")["path"]).read_bytes() == content
    first, second = machine.hub.asked("/cdn/")
    assert "Range" not in first.headers
    have = int(second.headers["Range"].removeprefix("bytes=").removesuffix("-"))
    assert 25_000_000 - have < 10 * 1024 * 1024, "at most one of the client's chunks is lost"
    assert sum(machine.hub.sent.values()) == 25_000_000 + len(content) - have


def test_a_download_that_was_killed_half_way_is_whole_after_the_next_run(machine: Machine) -> None:
    machine.hub.fault("params.npz", "stall", at=60_000)
    process = machine.start(SAE)
    assert machine.hub.stalled.wait(60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert machine.half_written() == []
    (partial,) = (machine.home / "hf").rglob("blobs/*.incomplete")
    assert Path(machine.resolve(SAE)["path"]).read_bytes() == WEIGHTS
    assert partial.exists(), "it may be another process'"
    os.utime(partial, (0, 0))
    machine.resolve(SAE)
    assert not partial.exists(), "it would fill the disk for nothing"


def test_a_reset_connection_is_tried_again(machine: Machine) -> None:
    machine.hub.fault("params.npz", "reset", at=60_000)
    assert Path(machine.resolve(SAE)["path"]).read_bytes() == WEIGHTS


def test_a_limit_that_passes_is_waited_for(machine: Machine) -> None:
    machine.hub.fault("params.npz", "status", status=429, headers={"Retry-After": "1"})
    began = time.monotonic()
    assert Path(machine.resolve(SAE)["path"]).read_bytes() == WEIGHTS
    assert time.monotonic() - began >= 1
    assert len(machine.hub.asked("/cdn/")) == 2


@pytest.mark.parametrize(
    ("prelude", "environment"),
    [(WITHOUT_XET, {}), ("", {"HF_HUB_DISABLE_XET": "1"})],
    ids=["not installed", "switched off"],
)
def test_without_the_hubs_own_transfer_library_the_bytes_come_by_http(
    machine: Machine, prelude: str, environment: dict[str, str]
) -> None:
    machine.hub.xet = True
    found = machine.resolve(SAE, prelude=prelude, **environment)
    assert Path(found["path"]).read_bytes() == WEIGHTS
    assert len(machine.hub.asked("/cdn/")) == 1


def test_a_folder_of_a_release_is_fetched_without_its_neighbours(machine: Machine) -> None:
    folder = "resid_post/layer_12_width_16k_l0_medium"
    files = {f"{folder}/config.json": b"{}", f"{folder}/params.safetensors": WEIGHTS}
    machine.hub.add("org/scope-2", {**files, "resid_post/layer_12_width_16k_l0_big/params.safetensors": b"x"})
    found = machine.resolve(f"hf://org/scope-2/{folder}/")
    assert sorted(path.name for path in Path(found["path"]).iterdir()) == [
        "config.json",
        "params.safetensors",
    ]
    assert found["revision"] == COMMIT
    assert [path for path in machine.hub.sent if "l0_big" in path] == []
    assert machine.resolve(f"hf://org/scope-2/{folder}/@{COMMIT}", HF_HUB_OFFLINE="1") == found


def test_a_damaged_file_of_the_cache_is_fetched_again(machine: Machine) -> None:
    path = Path(machine.resolve(SAE)["path"])
    path.write_bytes(b"damaged")
    os.utime(path, (0, 0))
    assert Path(machine.resolve(SAE)["path"]).read_bytes() == WEIGHTS


def test_the_users_token_opens_a_gated_model(machine: Machine) -> None:
    machine.hub.add("google/gemma-2-2b-it", MODEL, gated=True, token="hf_right")
    assert machine.resolve("hf://google/gemma-2-2b-it", HF_TOKEN="hf_right")["revision"] == COMMIT


def test_a_token_is_not_sent_to_where_the_bytes_are(machine: Machine) -> None:
    machine.resolve(SAE, HF_TOKEN="hf_secret")
    assert machine.hub.asked("/resolve/", "HEAD")[0].headers["authorization"] == "Bearer hf_secret"
    assert all("authorization" not in request.headers for request in machine.hub.asked("/cdn/"))


def test_the_lock_keeps_the_first_commit_until_it_is_told_to_move(machine: Machine) -> None:
    lock = machine.home / "results" / "sources.lock.json"
    uri = "hf://org/model"
    assert machine.resolve(uri, lock=str(lock))["revision"] == COMMIT
    assert json.loads(lock.read_text()) == {uri: COMMIT}
    newer = "2" * 40
    machine.hub.add("org/model", {**MODEL, "model.safetensors": WEIGHTS[::-1]}, commit=newer)
    assert machine.resolve(uri, lock=str(lock))["revision"] == COMMIT
    assert machine.resolve(uri, lock=str(lock), update=True)["revision"] == newer
    assert machine.resolve(uri, lock=str(lock), HF_HUB_OFFLINE="1")["revision"] == newer
