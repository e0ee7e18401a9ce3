"""What the hub's failures are called, what to do about them, and that nothing half-written is left."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from fakes.hub import COMMIT
from fakes.hub_machine import FALLBACK, IMPATIENT, MODEL, SAE, WEIGHTS, Machine, outcome, unused_port


def test_a_connection_that_stays_broken_leaves_nothing_under_the_files_name(machine: Machine) -> None:
    machine.hub.fault("params.npz", "cut", at=0, times=1000)
    error = machine.error(SAE, prelude=IMPATIENT)
    assert "the download broke off" in error
    assert "Run the same command again" in error
    assert machine.half_written() == []
    machine.hub.fault("params.npz", "cut", times=0)
    assert Path(machine.resolve(SAE)["path"]).read_bytes() == WEIGHTS


@pytest.mark.parametrize("uri", [SAE, "hf://org/model"])
def test_other_bytes_of_the_same_length_are_found_by_their_hash(machine: Machine, uri: str) -> None:
    machine.hub.fault("params.npz", "bytes", body=WEIGHTS[::-1])
    machine.hub.fault("model.safetensors", "bytes", body=WEIGHTS[::-1])
    error = machine.error(uri)
    assert "not the bytes that the hub publishes" in error
    assert hashlib.sha256(WEIGHTS).hexdigest() in error
    assert "HF_ENDPOINT" in error
    assert machine.half_written() == []
    assert machine.resolve(uri)["revision"] == COMMIT


def test_a_page_in_place_of_the_weights_is_called_a_page(machine: Machine) -> None:
    page = b"<!doctype html><title>Sign in</title>".ljust(len(WEIGHTS))
    machine.hub.fault("params.npz", "bytes", body=page)
    assert "params.npz is an HTML page" in machine.error(SAE)


def test_a_git_lfs_pointer_in_place_of_the_weights_is_called_a_pointer(machine: Machine) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n".ljust(len(WEIGHTS))
    machine.hub.fault("params.npz", "bytes", body=pointer)
    assert "params.npz is a Git LFS pointer" in machine.error(SAE)


def test_a_login_page_instead_of_the_hub_is_recognised(machine: Machine) -> None:
    machine.hub.page = b"<html>Welcome to the hotel</html>"
    error = machine.error(SAE)
    assert "answers, but not as a model hub" in error
    assert FALLBACK in error


def test_a_gated_model_without_a_token_names_licence_token_and_fallback(machine: Machine) -> None:
    machine.hub.add("google/gemma-2-2b-it", MODEL, gated=True, token="hf_right")
    error = machine.error("hf://google/gemma-2-2b-it")
    assert "gated and no token is set" in error
    assert "https://huggingface.co/google/gemma-2-2b-it" in error
    assert "HF_TOKEN" in error
    assert FALLBACK in error


def test_a_gated_model_says_when_the_token_has_no_access(machine: Machine) -> None:
    machine.hub.add("google/gemma-2-2b-it", MODEL, gated=True, token="hf_right")
    error = machine.error("hf://google/gemma-2-2b-it", HF_TOKEN="hf_other")
    assert "gated and the token that is set has no access to it" in error
    assert "hf_other" not in error


@pytest.mark.parametrize("uri", [SAE, "hf://org/model"])
def test_a_token_that_is_not_valid_is_no_missing_repository(machine: Machine, uri: str) -> None:
    machine.hub.invalid_tokens.add("hf_expired")
    error = machine.error(uri, HF_TOKEN="hf_expired")
    assert "the hub refuses access (401). Set HF_TOKEN to a valid token" in error
    assert "hf_expired" not in error


def test_an_unknown_repository_is_said_to_be_unknown_or_private(machine: Machine) -> None:
    error = machine.error("hf://org/modle")
    assert "there is no repository 'org/modle' on the hub, or it is private" in error
    assert FALLBACK in error


def test_a_missing_file_names_the_closest_ones(machine: Machine) -> None:
    machine.hub.add(
        "org/scope",
        {
            f"layer_{layer}/width_16k/average_l0_{l0}/params.npz": b"x"
            for layer, l0 in ((12, 22), (12, 82), (20, 71))
        },
    )
    error = machine.error("hf://org/scope/layer_12/width_16k/average_l0_71/params.npz")
    assert "the repository has no 'layer_12/width_16k/average_l0_71/params.npz'" in error
    near = error.split("The closest there: ")[1].split(", ")
    assert near[:2] == [
        "layer_12/width_16k/average_l0_22/params.npz",
        "layer_12/width_16k/average_l0_82/params.npz",
    ]


def test_a_missing_folder_is_a_missing_file(machine: Machine) -> None:
    assert "the repository has no 'layer_9/'" in machine.error("hf://org/sae/layer_9/")


def test_an_unknown_revision_is_named(machine: Machine) -> None:
    assert "the repository has no revision 'v9'" in machine.error("hf://org/model@v9")


def test_offline_mode_with_a_cold_cache_says_so(machine: Machine) -> None:
    error = machine.error("hf://org/model", HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE forbids" in error
    assert FALLBACK in error
    assert machine.hub.requests == []


@pytest.mark.parametrize("uri", [SAE, "hf://org/model"])
def test_no_network_says_so_and_names_the_way_without(machine: Machine, uri: str) -> None:
    endpoint = f"http://127.0.0.1:{unused_port()}"
    error = machine.error(uri, HF_ENDPOINT=endpoint, prelude=IMPATIENT)
    assert f"the hub at {endpoint} cannot be reached" in error
    assert FALLBACK in error


def test_a_hub_in_trouble_is_quoted(machine: Machine) -> None:
    machine.hub.fault("params.npz", "status", status=503, times=1000)
    assert "the hub answers 503" in machine.error(SAE)


@pytest.mark.parametrize(
    ("headers", "when"), [({"Retry-After": "77"}, "in 77 seconds"), ({}, "in a few minutes")]
)
def test_a_limit_that_stays_says_when_to_come_back(
    machine: Machine, headers: dict[str, str], when: str
) -> None:
    machine.hub.fault("params.npz", "status", status=429, times=1000, headers=headers)
    error = machine.error(SAE, prelude=IMPATIENT)
    assert f"the limit is reached (429). Run the same command again {when}; with HF_TOKEN" in error
    assert machine.half_written() == []


@pytest.mark.parametrize(
    "prelude",
    [
        "import shutil, collections;"
        "shutil.disk_usage = lambda path: collections.namedtuple('Usage', 'total used free')(10, 9, 1)",
        "import huggingface_hub.file_download as client, errno\n"
        "def http_get(*args, **options): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "client.http_get = http_get",
        "import huggingface_hub.file_download as client\n"
        "def http_get(*args, **options): raise RuntimeError('Task error: No space left on device (os error 28)')\n"
        "client.http_get = http_get",
    ],
    ids=["before the download", "during the download", "in the storage's library"],
)
def test_a_full_disk_names_the_folder_and_the_variable(machine: Machine, prelude: str) -> None:
    error = machine.error(SAE, prelude=prelude)
    assert f"the disk of the hub's cache ({machine.home}/hf/hub) is full" in error
    assert "HF_HOME" in error
    assert machine.half_written() == []


def test_a_failure_of_the_hubs_own_storage_names_the_way_around_it(machine: Machine) -> None:
    machine.hub.xet = True  # it answers 404 to what only the storage's library asks
    error = machine.error(SAE, HF_HUB_DISABLE_XET="0")
    assert "the hub's storage for large files (Xet) failed" in error
    assert "HF_HUB_DISABLE_XET=1 fetches the bytes by plain HTTP" in error
    assert machine.half_written() == []
    assert Path(machine.resolve(SAE, HF_HUB_DISABLE_XET="1")["path"]).read_bytes() == WEIGHTS


def test_two_processes_that_want_one_file_both_get_it(machine: Machine) -> None:
    processes = [machine.start("hf://org/model") for _ in range(2)]
    first, second = [outcome(process) for process in processes]
    assert first == second
    assert "error" not in first
    assert machine.half_written() == []


def test_a_wrong_pin_is_refused_with_both_hashes(machine: Machine) -> None:
    error = machine.error(f"{SAE}#sha256={'0' * 64}")
    assert "not the pinned ones" in error
    assert hashlib.sha256(WEIGHTS).hexdigest() in error


def test_a_commit_that_is_gone_names_the_command_that_moves_on(machine: Machine) -> None:
    lock = machine.home / "sources.lock.json"
    lock.write_text(json.dumps({"hf://org/model": "3" * 40}))
    error = machine.error("hf://org/model", lock=str(lock))
    assert f"the repository has no revision '{'3' * 40}'" in error
    assert "neuroscope models pull PAIRING --update" in error
