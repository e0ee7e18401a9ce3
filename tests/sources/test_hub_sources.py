"""Sources on the hub: the real client in a process of its own, against a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.hub import COMMIT, FakeHub

WEIGHTS = bytes(range(256)) * 400
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"the same weights again",
    "onnx/config.json": b"{}",
    "README.md": b"# A model",
}
FALLBACK = "NEUROSCOPE_PAIRING=smollm2-135m snakemake --cores 8 labels"
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
exec(sys.argv[1])
from neuroscope.errors import SourceError
from neuroscope.sources import resolve
from neuroscope.manifest import SourcesLock
from pathlib import Path
uri, lock, update = sys.argv[2:]
try:
    found = SourcesLock(Path(lock)).resolve(uri, update=update == "update", progress=False) if lock \
        else resolve(uri, progress=False)
    print(json.dumps({"path": str(found.path), "revision": found.revision, "sha256": found.sha256}))
except SourceError as error:
    print(json.dumps({"error": str(error)}))
"""


@dataclass
class Machine:
    """A user's machine: a home of its own, and a hub to talk to."""

    home: Path
    hub: FakeHub

    def start(
        self, uri: str, *, prelude: str = "", lock: str = "", update: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "NEUROSCOPE_"))}
        environment = {
            **clean,
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.home / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NEUROSCOPE_CACHE": str(self.home / "cache"),
            "NO_PROXY": "127.0.0.1,localhost",
            **environment,
        }
        command = [sys.executable, "-c", SCRIPT, prelude, uri, lock, "update" if update else ""]
        return subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def resolve(self, uri: str, **how: str | bool) -> dict[str, str]:
        """What `resolve` gave, or its error under "error"."""
        return outcome(self.start(uri, **how))  # type: ignore[arg-type]

    def error(self, uri: str, **how: str | bool) -> str:
        return self.resolve(uri, **how)["error"]

    def half_written(self) -> list[Path]:
        """Files that would be taken for whole ones, but are not the hub's."""
        known = {
            hashlib.sha256(content).hexdigest()
            for repository in self.hub.repositories.values()
            for files in repository.commits.values()
            for content in files.values()
        }
        found = [path for path in (self.home / "hf").rglob("snapshots/*/**/*") if path.is_file()]
        return [path for path in found if hashlib.sha256(path.read_bytes()).hexdigest() not in known]


def outcome(process: subprocess.Popen[str]) -> dict[str, str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        hub.add("org/model", MODEL)
        hub.add("org/sae", {"layer_20/width_16k/average_l0_71/params.npz": WEIGHTS})
        yield hub


@pytest.fixture
def machine(hub: FakeHub, tmp_path: Path) -> Machine:
    return Machine(tmp_path, hub)


SAE = "hf://org/sae/layer_20/width_16k/average_l0_71/params.npz"


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


def test_a_reset_connection_is_tried_again(machine: Machine) -> None:
    machine.hub.fault("params.npz", "reset", at=60_000)
    assert Path(machine.resolve(SAE)["path"]).read_bytes() == WEIGHTS


def test_a_connection_that_stays_broken_leaves_nothing_under_the_files_name(machine: Machine) -> None:
    machine.hub.fault("params.npz", "cut", at=0, times=1000)
    error = machine.error(SAE, prelude="import time; time.sleep = lambda seconds: None")
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


def test_a_damaged_file_of_the_cache_is_fetched_again(machine: Machine) -> None:
    path = Path(machine.resolve(SAE)["path"])
    path.write_bytes(b"damaged")
    os.utime(path, (0, 0))
    assert Path(machine.resolve(SAE)["path"]).read_bytes() == WEIGHTS


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


def test_the_users_token_opens_a_gated_model(machine: Machine) -> None:
    machine.hub.add("google/gemma-2-2b-it", MODEL, gated=True, token="hf_right")
    assert machine.resolve("hf://google/gemma-2-2b-it", HF_TOKEN="hf_right")["revision"] == COMMIT


@pytest.mark.parametrize("uri", [SAE, "hf://org/model"])
def test_a_token_that_is_not_valid_is_no_missing_repository(machine: Machine, uri: str) -> None:
    machine.hub.invalid_tokens.add("hf_expired")
    error = machine.error(uri, HF_TOKEN="hf_expired")
    assert "the hub refuses access (401). Set HF_TOKEN to a valid token" in error
    assert "hf_expired" not in error


def test_a_token_is_not_sent_to_where_the_bytes_are(machine: Machine) -> None:
    machine.resolve(SAE, HF_TOKEN="hf_secret")
    assert machine.hub.asked("/resolve/", "HEAD")[0].headers["authorization"] == "Bearer hf_secret"
    assert all("authorization" not in request.headers for request in machine.hub.asked("/cdn/"))


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
    error = machine.error(uri, HF_ENDPOINT=endpoint, prelude="import time; time.sleep = lambda seconds: None")
    assert f"the hub at {endpoint} cannot be reached" in error
    assert FALLBACK in error


def test_a_hub_in_trouble_is_quoted(machine: Machine) -> None:
    machine.hub.fault("params.npz", "status", status=503, times=1000)
    assert "the hub answers 503" in machine.error(SAE)


@pytest.mark.parametrize(
    "prelude",
    [
        "import shutil, collections;"
        "shutil.disk_usage = lambda path: collections.namedtuple('Usage', 'total used free')(10, 9, 1)",
        "import huggingface_hub.file_download as client, errno\n"
        "def http_get(*args, **options): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "client.http_get = http_get",
    ],
    ids=["before the download", "during the download"],
)
def test_a_full_disk_names_the_folder_and_the_variable(machine: Machine, prelude: str) -> None:
    error = machine.error(SAE, prelude=prelude)
    assert f"the disk of the hub's cache ({machine.home}/hf/hub) is full" in error
    assert "HF_HOME" in error
    assert machine.half_written() == []


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


def test_a_commit_that_is_gone_names_the_command_that_moves_on(machine: Machine) -> None:
    lock = machine.home / "sources.lock.json"
    lock.write_text(json.dumps({"hf://org/model": "3" * 40}))
    error = machine.error("hf://org/model", lock=str(lock))
    assert f"the repository has no revision '{'3' * 40}'" in error
    assert "neuroscope models pull --update" in error


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert isinstance(port, int)
    return port
