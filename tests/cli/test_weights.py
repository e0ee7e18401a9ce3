"""`models` and `sae` list and pull: what is here, and fetching exactly what is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.hub import COMMIT
from fakes.hub_machine import MODEL, WEIGHTS, Machine, unused_port

from neuroscope.cli.output import human_bytes

NEWER = "2" * 40
SAE_PATH = "layer_20/width_16k/average_l0_71/params.npz"
MODEL_BYTES = len(MODEL["config.json"]) + len(WEIGHTS)


def listed(machine: Machine, kind: str, pairing: str = "gemma-2-2b-it", **environment: str) -> dict[str, Any]:
    """The row of a pairing, as a program reads it."""
    done = machine.neuroscope(kind, "list", "--json", **environment)
    assert done.returncode == 0, done.stderr
    (row,) = [row for row in json.loads(done.stdout) if row["pairing"] == pairing]
    assert isinstance(row, dict)
    return row


def cells(table: str, pairing: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"{pairing} ")]
    return line.split()


def test_a_list_asks_no_network_and_says_what_is_not_here(machine: Machine) -> None:
    row = listed(machine, "models")
    assert (row["complete"], row["size"], row["revision"], row["path"]) == (False, None, None, None)
    assert "no" in cells(machine.neuroscope("sae", "list").stdout, "gemma-2-2b-it")
    assert machine.hub.requests == []


def test_after_a_pull_the_list_has_size_revision_and_path(machine: Machine) -> None:
    pulled = machine.neuroscope("models", "pull", "gemma-2-2b-it")
    machine.hub.requests.clear()
    row = listed(machine, "models", HF_ENDPOINT=f"http://127.0.0.1:{unused_port()}")
    assert (row["complete"], row["size"], row["revision"]) == (True, MODEL_BYTES, COMMIT)
    assert f"{row['path']}\n" == pulled.stdout
    shown = cells(machine.neuroscope("models", "list").stdout, "gemma-2-2b-it")
    assert shown[1:5] == ["yes", "102", "kB", COMMIT[:12]]
    assert machine.hub.requests == []


def test_a_model_that_lacks_a_file_is_partly_here(machine: Machine) -> None:
    machine.neuroscope("models", "pull", "gemma-2-2b-it")
    (weights,) = (machine.home / "hf").rglob("snapshots/*/model.safetensors")
    weights.unlink()
    row = listed(machine, "models")
    assert (row["complete"], row["files"], row["files_expected"]) == (False, 1, 2)
    assert row["size"] == len(MODEL["config.json"])
    assert "partly: 1 of 2 files" in machine.neuroscope("models", "list").stdout
    for listing in (machine.home / "hf").rglob("trees/*.json"):
        listing.unlink()
    assert listed(machine, "models")["complete"] is False, "also without the hub's listing"


def test_a_sharded_model_without_a_listing_is_known_by_its_index(machine: Machine) -> None:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    files = {"config.json": b"{}", "model.safetensors.index.json": index}
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2"}
    machine.hub.add("google/gemma-2-2b-it", {**files, **shards})
    machine.neuroscope("models", "pull", "gemma-2-2b-it")
    for gone in ("trees/*.json", "snapshots/*/model-2.safetensors"):
        for path in (machine.home / "hf").rglob(gone):
            path.unlink()
    row = listed(machine, "models")
    assert (row["files"], row["files_expected"]) == (3, 4)


def test_the_list_shows_the_recorded_commit_and_not_a_newer_one(machine: Machine) -> None:
    machine.neuroscope("models", "pull", "gemma-2-2b-it")
    machine.hub.add("google/gemma-2-2b-it", {**MODEL, "config.json": b"{}"}, commit=NEWER)
    machine.neuroscope("models", "pull", "google/gemma-2-2b-it")
    row = listed(machine, "models")
    assert (row["revision"], row["size"]) == (COMMIT, MODEL_BYTES)


def test_update_moves_to_the_newest_commit_and_says_so(machine: Machine) -> None:
    first = machine.neuroscope("models", "pull", "gemma-2-2b-it")
    assert f"hf://google/gemma-2-2b-it is at {COMMIT}.\n" in first.stderr
    machine.hub.add("google/gemma-2-2b-it", MODEL, commit=NEWER)
    again = machine.neuroscope("models", "pull", "gemma-2-2b-it")
    assert again.stdout == first.stdout
    assert f"is at {COMMIT}, as recorded." in again.stderr
    moved = machine.neuroscope("models", "pull", "gemma-2-2b-it", "--update")
    assert f"hf://google/gemma-2-2b-it moved from {COMMIT} to {NEWER}" in moved.stderr
    lock = json.loads((machine.checkout / "results/gemma-2-2b-it/sources.lock.json").read_text())
    assert lock == {"hf://google/gemma-2-2b-it": NEWER}
    assert listed(machine, "models")["revision"] == NEWER


def test_pull_fetches_the_pairings_sae_and_nothing_else_of_its_release(machine: Machine) -> None:
    done = machine.neuroscope("sae", "pull", "gemma-2-2b-it")
    assert done.stdout.endswith(f"/snapshots/{COMMIT}/{SAE_PATH}\n")
    assert done.stdout.count("\n") == 1
    assert "params.npz" in done.stderr, "progress"
    (snapshot,) = (machine.home / "hf").rglob("snapshots/*")
    assert [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()] == [
        SAE_PATH
    ]
    row = listed(machine, "sae")
    assert (row["complete"], row["size"], row["files"]) == (True, len(WEIGHTS), 1)
    assert (row["layer"], row["width"]) == (20, 16384)


def test_pull_fetches_a_gemma_scope_2_folder_and_nothing_else(machine: Machine) -> None:
    folder = "resid_post/layer_17_width_16k_l0_medium"
    files = {f"{folder}/config.json": b'{"l0": 60}', f"{folder}/params.safetensors": WEIGHTS}
    other = {"resid_post/layer_17_width_16k_l0_big/params.safetensors": b"x" * 1000}
    machine.hub.add("google/gemma-scope-2-1b-it", {**files, **other})
    done = machine.neuroscope("sae", "pull", "gemma-3-1b-it")
    assert done.stdout.endswith(f"/{folder}\n"), done.stderr
    assert not [path for path in machine.hub.sent if "l0_big" in path]
    row = listed(machine, "sae", "gemma-3-1b-it")
    assert (row["complete"], row["files"], row["size"]) == (True, 2, len(WEIGHTS) + 10)


def test_another_sae_of_the_pairings_release_is_pulled_by_its_path(machine: Machine) -> None:
    path = "layer_20/width_16k/average_l0_139/params.npz"
    for name in ("gemma-2-2b-it", "google/gemma-scope-2b-pt-res", f"google/gemma-scope-2b-pt-res@{COMMIT}"):
        done = machine.neuroscope("sae", "pull", name, "--sae-path", path)
        assert done.stdout.endswith(f"/{path}\n"), done.stderr


def test_a_pull_that_is_cut_resumes(machine: Machine) -> None:
    content = bytes(21_000_000)
    machine.hub.add("google/gemma-scope-2b-pt-res", {SAE_PATH: content})
    machine.hub.fault("params.npz", "cut", at=15_000_000)
    assert machine.neuroscope("sae", "pull", "gemma-2-2b-it").returncode == 0
    assert machine.hub.asked("/cdn/")[-1].headers["Range"] == f"bytes={10 * 1024 * 1024}-"


def test_a_whole_release_is_not_pulled_by_accident(machine: Machine) -> None:
    done = machine.neuroscope("sae", "pull", "google/gemma-scope-2b-pt-res")
    assert (done.returncode, done.stdout) == (1, "")
    assert "say which SAE of it with --sae-path" in done.stderr
    assert "neuroscope sae list --remote google/gemma-scope-2b-pt-res" in done.stderr
    assert machine.hub.requests == []


@pytest.mark.parametrize("kind", ["models", "sae"])
def test_a_wrong_name_suggests_the_nearest_pairing(machine: Machine, kind: str) -> None:
    done = machine.neuroscope(kind, "pull", "gemma-2-2bit")
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no pairing 'gemma-2-2bit'. Did you mean gemma-2-2b-it?" in done.stderr


def test_a_gated_model_names_its_licence_and_the_token(machine: Machine) -> None:
    machine.hub.add("meta-llama/Llama-3.1-8B-Instruct", MODEL, gated=True, token="hf_right")
    done = machine.neuroscope("models", "pull", "llama-3.1-8b-instruct")
    assert (done.returncode, done.stdout) == (1, "")
    assert "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct" in done.stderr
    assert "HF_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_pull_offline_takes_what_is_here_and_refuses_what_is_not(machine: Machine) -> None:
    machine.neuroscope("models", "pull", "gemma-2-2b-it")
    assert machine.neuroscope("models", "pull", "gemma-2-2b-it", HF_HUB_OFFLINE="1").returncode == 0
    cold = machine.neuroscope("sae", "pull", "gemma-2-2b-it", HF_HUB_OFFLINE="1")
    assert cold.returncode == 1
    assert "HF_HUB_OFFLINE forbids to fetch it" in cold.stderr


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (102_400, "102 kB"),
        (999_600, "1.0 MB"),
        (302_000_000, "302 MB"),
        (5_228_717_512, "5.2 GB"),
    ],
)
def test_bytes_are_told_as_the_hub_tells_them(size: int, words: str) -> None:
    assert human_bytes(size) == words
