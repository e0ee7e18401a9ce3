"""llama.cpp as a backend: a tiny Llama in full precision against torch, and the real quantised SmolLM2."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from fakes.gguf_files import write_gguf
from fakes.tiny import CONTEXT, D_MODEL, LAYERS, VOCABULARY, save_tiny_llama

from neuroscope import large_pages, native, sources
from neuroscope.engine import Engine, Sampling
from neuroscope.errors import ModelError, SourceError
from neuroscope.memory import Memory
from neuroscope.models import llamacpp_model
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.file_key import file_key
from neuroscope.models.llamacpp import LlamaCppBackend
from neuroscope.models.llamacpp_context import CELL
from neuroscope.models.llamacpp_context import CONTEXT as MOST
from neuroscope.models.llamacpp_library import llama
from neuroscope.models.llamacpp_model import declared_type
from neuroscope.models.loading import load_tokenizer
from neuroscope.models.opening import open_backend
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.prefill import PREFILL_CELL
from neuroscope.sae import SparseAutoencoder
from neuroscope.settings import load_pairing

LAYER = 1


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that is made here stays in the cache of whoever runs the tests."""
    patch = pytest.MonkeyPatch()
    cache = tmp_path_factory.mktemp("cache")
    patch.setattr(native, "cache_dir", lambda: cache)
    for module in ("llamacpp_file", "llamacpp_trial", "loading"):
        patch.setattr(f"neuroscope.models.{module}.cache_dir", lambda: cache)
    native.compiled.cache_clear()
    yield
    patch.undo()
    native.compiled.cache_clear()


@pytest.fixture(scope="module")
def tiny_gguf(tiny_llama: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", *tiny_llama)


@pytest.fixture(scope="module")
def tiny(tiny_gguf: Path) -> LlamaCppBackend:
    return LlamaCppBackend(tiny_gguf, LAYER)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    return sources.resolve(load_pairing("smollm2-135m").model).path


@pytest.fixture(scope="module")
def real(smollm2: Path) -> LlamaCppBackend:
    return LlamaCppBackend(smollm2, 20)


def ids_of(length: int, seed: int = 0, vocabulary: int = VOCABULARY) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(10, vocabulary, (length,), generator=generator).tolist()


def run(backend: Any, ids: list[int]) -> list[torch.Tensor]:
    """Residuals and logits of cells of CELL positions, all that comes out."""
    passes = [backend.forward(ids[at : at + CELL]) for at in range(0, len(ids), CELL)]
    return [tensor for one in passes for tensor in (one.residual, one.logits)]


def equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_a_cell_of_the_prompt_is_one_graph() -> None:
    """Else its numbers would depend on how llama.cpp splits it."""
    assert CELL >= PREFILL_CELL


def test_it_tells_what_the_file_says(tiny: LlamaCppBackend) -> None:
    assert (tiny.d_model, tiny.layer, tiny.context_length, tiny.vocabulary) == (
        D_MODEL,
        LAYER,
        CONTEXT,
        VOCABULARY,
    )
    assert tiny.end_ids >= {1}
    assert tiny.device == torch.device("cpu")


@pytest.mark.parametrize("layer", range(LAYERS))
def test_residual_and_logits_of_every_layer_are_torchs(
    layer: int, tiny_gguf: Path, tiny_llama: tuple[Any, Any]
) -> None:
    """In cells, then one by one; the last layer too, of which llama.cpp keeps only the rows it needs."""
    found, expected = LlamaCppBackend(tiny_gguf, layer), TorchBackend(*tiny_llama, layer)
    ids = ids_of(100)
    for part in (ids[:64], ids[64:97], ids[97:98], ids[98:99], ids[99:]):
        one, other = found.forward(part), expected.forward(part)
        assert one.residual.shape == (len(part), D_MODEL)
        assert one.residual.dtype == one.logits.dtype == torch.float32
        assert torch.nn.functional.cosine_similarity(one.residual, other.residual).min() > 0.9999
        torch.testing.assert_close(one.logits, other.logits, atol=0.05, rtol=0.02)


def test_the_taken_residual_changes_nothing(real: LlamaCppBackend) -> None:
    """Greedy tokens of a context without any callback are the same, and so are the logits, bit for bit."""
    bare = real._open_context(512)
    ids = ids_of(40, vocabulary=49000)
    real.rewind(0)
    try:
        for _ in range(20):
            logits = real.forward(ids).logits
            real._decode(bare, ids, all_logits=False)
            assert torch.equal(logits, torch.from_numpy(real._logits(bare, -1)))
            ids = [int(logits.argmax())]
    finally:
        llama().llama_free(bare)


def test_weights_in_large_pages_are_the_files(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit; where memory is scarce the file stays mapped, so that the system can drop what it needs."""
    mapped = _mapped(smollm2)
    read = LlamaCppBackend(smollm2, 20)
    assert (_mapped(smollm2) == mapped) is large_pages.offered()
    monkeypatch.setattr(large_pages, "memory", lambda: Memory(smollm2.stat().st_size, 10**12))
    scarce = LlamaCppBackend(smollm2, 20)
    assert _mapped(smollm2) > mapped
    ids = ids_of(70, vocabulary=49000)
    for part in (ids[:64], ids[64:69], ids[69:]):
        assert equal(run(read, part), run(scarce, part))


def _mapped(path: Path) -> int:
    """How often a file is in the process's memory as a whole."""
    return Path("/proc/self/maps").read_text().count(f" {path}\n")


def test_large_pages_are_asked_for_all_weights(smollm2: Path) -> None:
    """In a process of its own: one that ran before may have free memory left that llama.cpp is given again."""
    script = (
        "import sys; from pathlib import Path; from neuroscope.models.llamacpp import LlamaCppBackend;"
        "backend = LlamaCppBackend(Path(sys.argv[1]), 20); print(Path('/proc/self/smaps').read_text())"
    )
    env = {**os.environ, "NEUROSCOPE_CACHE": str(native.cache_dir())}
    command = [sys.executable, "-c", script, str(smollm2)]
    smaps = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    sizes = re.findall(r"(?s)\nSize: +(\d+) kB.*?\nVmFlags:([^\n]*)", smaps)
    asked_for = sum(int(size) * 1024 for size, flags in sizes if "hg" in flags.split())
    assert (asked_for > 0.9 * smollm2.stat().st_size) is large_pages.offered()


def test_a_file_is_as_large_as_all_its_parts(tmp_path: Path) -> None:
    for name, size in (("[a]-00001-of-00002.gguf", 100), ("[a]-00002-of-00002.gguf", 401), ("b.gguf", 500)):
        (tmp_path / name).write_bytes(bytes(size))
    assert llamacpp_model._bytes(tmp_path / "b.gguf") == 500
    assert llamacpp_model._bytes(tmp_path / "[a]-00001-of-00002.gguf") == 501


@pytest.mark.parametrize("when", ["at once", "while it waits", "in another thread", "too late"])
def test_ctrl_c_ends_the_loading_and_nothing_stays(
    when: str, smollm2: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Raised where C calls Python it would be printed and lost, and the file said to be damaged."""
    calls = []

    def ctrl_c() -> int:
        calls.append(1)
        if when != "at once":
            time.sleep(0.5)  # until then the main thread has started this one, and waits
        if when == "in another thread":  # the system may give it to any, and the main thread is not woken
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)  # the main thread has it by then
        return 0

    monkeypatch.setattr(large_pages, "room_for", lambda _size: True)
    monkeypatch.setattr(large_pages, "for_what_comes", lambda: ctrl_c)
    if when == "too late":
        away = llamacpp_model._away_from_signals
        monkeypatch.setattr(
            llamacpp_model, "_away_from_signals", lambda work, _: away(work, threading.Event())
        )
    library, loaded, freed = llama(), [], []
    load, free = library.llama_model_load_from_file, library.llama_model_free
    monkeypatch.setattr(
        library, "llama_model_load_from_file", lambda *of: loaded.append(load(*of)) or loaded[-1]
    )
    monkeypatch.setattr(library, "llama_model_free", lambda model: freed.append(model) or free(model))
    with pytest.raises(KeyboardInterrupt):
        LlamaCppBackend(smollm2, 20)
    assert (calls, capfd.readouterr().err) == ([1], "")
    assert bool(loaded[0]) == (when == "too late")
    assert freed == [model for model in loaded if model]
    monkeypatch.undo()
    LlamaCppBackend(smollm2, 20).close()


@pytest.mark.parametrize("when", ["before", "while it loads", "after"])
def test_ctrl_c_as_the_thread_is_started_loses_no_model(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the thread yet; what it loads is freed, once."""
    loaded, freed, stopped = [], [], threading.Event()
    start = threading.Thread.start
    threads = []

    def interrupted(thread: threading.Thread) -> None:
        if when != "before":
            start(thread)
            threads.append(thread)
        if when == "after":
            thread.join()
        raise KeyboardInterrupt

    def load() -> int:
        stopped.wait(0 if when == "after" else 10)
        loaded.append(1)
        return 1

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(llamacpp_model, "_free", freed.append)
    with pytest.raises(KeyboardInterrupt):
        llamacpp_model._away_from_signals(load, stopped)
    assert not any(thread.is_alive() for thread in threads)
    assert freed == loaded == ([] if when == "before" else [1])


def test_the_callback_in_python_takes_the_same(real: LlamaCppBackend, smollm2: Path) -> None:
    assert real._tap.compiled, "a C compiler is there"
    slow = LlamaCppBackend(smollm2, 20, compiled=False)
    assert not slow._tap.compiled
    ids = ids_of(70, vocabulary=49000)
    real.rewind(0)
    slow.rewind(0)
    assert equal(run(slow, ids), run(real, ids))


def test_without_a_compiler_python_takes_the_residual_and_says_what_is_faster(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "cache_dir", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    native.compiled.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            backend = LlamaCppBackend(tiny_gguf, LAYER)
    finally:
        native.compiled.cache_clear()
    assert backend.forward([5, 6]).residual.shape == (2, D_MODEL)
    assert "no C compiler is on the path: none of cc, gcc, clang" in caplog.text
    assert "compiled at the next start" in caplog.text


@pytest.mark.parametrize("which", ["tiny", "real"])
def test_what_is_rewound_or_restored_is_bit_for_bit_a_fresh_run(
    which: str, request: pytest.FixtureRequest
) -> None:
    backend: LlamaCppBackend = request.getfixturevalue(which)
    ids, other = ids_of(4 * CELL + 10, seed=1), ids_of(3 * CELL + 5, seed=2)
    backend.rewind(0)
    expected = run(backend, ids)
    backend.rewind(0)
    cells = []
    for start in range(0, 4 * CELL, CELL):
        backend.forward(ids[start : start + CELL])
        cells.append(backend.take(start, start + CELL))
    assert all(cell is not None and cell.nbytes > 0 for cell in cells)
    cases = ((4, 0), (3, 1), (2, 2), (0, 4), (1, 2), (0, 1))
    for kept, from_store in cases if which == "tiny" else cases[2:4]:
        reused = kept + from_store
        backend.rewind(0)
        if kept:
            run(backend, ids)
        else:
            run(backend, other)
        assert backend.rewind(kept * CELL) == kept * CELL
        backend.restore(cells[kept:reused])
        assert equal(run(backend, ids[reused * CELL :]), expected[2 * reused :]), (kept, from_store)


def test_taking_leaves_the_cache_as_it_is(tiny: LlamaCppBackend) -> None:
    ids = ids_of(CELL + 3)
    tiny.rewind(0)
    run(tiny, ids)
    expected = tiny.forward([7]).logits
    tiny.rewind(len(ids))
    assert tiny.take(3, 60) is not None
    assert tiny.take(60, 3) is None
    assert tiny.take(0, len(ids) + 1) is None
    assert torch.equal(tiny.forward([7]).logits, expected)


def test_logits_of_a_prompt_are_those_of_its_tokens_one_by_one(tiny: LlamaCppBackend) -> None:
    ids = ids_of(CELL + 9)
    tiny.rewind(0)
    one_by_one = torch.stack([tiny.forward([token]).logits for token in ids])
    found = list(tiny.prompt_logits(ids))
    assert [len(part) for part in found] == [CELL, 9]
    cosine = torch.nn.functional.cosine_similarity(torch.cat(found), one_by_one)
    assert cosine.min() > 0.999, cosine.min()
    assert tiny.rewind(len(ids)) == len(ids), "the cache is as it was"


def test_batches_of_windows_are_the_same_windows_one_by_one(tiny: LlamaCppBackend) -> None:
    ids = torch.tensor([ids_of(90), ids_of(90, seed=3)])
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, 70:] = False
    found = tiny.residuals(ids, mask)
    assert found.shape == (2, 90, D_MODEL)
    assert not found[1, 70:].any()
    tiny.rewind(0)
    assert torch.equal(found[1, :70], tiny.forward(ids[1, :70].tolist()).residual)


def test_a_prompt_that_does_not_fit_is_refused_and_the_next_one_runs(tiny: LlamaCppBackend) -> None:
    tiny.rewind(0)
    tiny.forward(ids_of(CONTEXT - 1))
    with pytest.raises(
        ModelError, match=f"2 tokens after {CONTEXT - 1} cannot run: the context is {CONTEXT}"
    ):
        tiny.forward([5, 6])
    tiny.forward([5])
    with pytest.raises(ModelError, match="1 tokens after"):
        tiny.forward([5])
    tiny.rewind(0)
    with pytest.raises(ModelError, match="0 tokens"):
        tiny.forward([])
    with pytest.raises(ModelError, match=r"could not run 2 tokens .*invalid token"):
        tiny.forward([5, VOCABULARY])
    tiny.rewind(0)
    assert torch.isfinite(tiny.forward([5]).logits).all()


def test_closed_while_it_runs_it_ends_the_pass_first(smollm2: Path) -> None:
    backend = LlamaCppBackend(smollm2, 20)
    said: list[Any] = []

    def passes() -> None:
        try:
            while True:
                said.append(backend.forward([5]).logits.isfinite().all())
        except ModelError as error:
            said.append(str(error))

    thread = threading.Thread(target=passes)
    thread.start()
    while len(said) < 3:
        thread.join(0.01)
    backend.close()
    thread.join()
    assert said[-1] == "The model was closed."
    assert all(said[:-1])
    backend.close()


def test_memory_goes_with_the_last_reference(tiny_gguf: Path) -> None:
    backend = LlamaCppBackend(tiny_gguf, LAYER)
    freed = backend._free
    del backend
    assert not freed.alive


def test_an_engine_generates_on_it_the_same_with_and_without_reuse(
    tiny_gguf: Path, tiny_sae: SparseAutoencoder
) -> None:
    opened = open_backend(
        tiny_gguf, LAYER, backend="llamacpp", device="cpu", dtype="float32", quantization="none"
    )
    assert opened.numbers == "gguf"
    chat = ChatTokenizer(opened.tokenizer, end_ids=opened.backend.end_ids)
    answers = []
    for megabytes in (512, 0):
        engine = Engine(opened.backend, tiny_sae, chat, prefix_cache_mb=megabytes)
        for text in (
            "the user said hello " * 20,
            "another text " * 30,
            "the user said hello " * 20 + "again",
        ):
            prompt = engine.prepare(text)
            steps = list(engine.generate(prompt, Sampling(max_tokens=12, temperature=0.9, seed=3)))
            answers.append(
                [(step.token_id, step.acts.indices.tolist(), step.acts.values.tolist()) for step in steps]
            )
        assert (engine.reused_tokens > 0) == (megabytes > 0)
        scored = engine.score(prompt, 2)
        assert len(scored) == len(prompt.ids)
        assert scored[5].logprob is not None
    assert answers[:3] == answers[3:]
    assert any(indices for answer in answers for _, indices, _ in answer)


TEXTS = (
    "Where is Paris? In 1789, it wasn't 12,345 km away.",
    "def f(x):\n    return x ** 2  # tabs\tand   spaces\n\n\n",
    "Straße, naïve, 東京タワー, Привет мир, 🙂👍🏽 \u200d e\u0301",
    "  leading and trailing  ",
    "I'LL, we've; don't -- e.g. 3.14159e-10 / 100%",
)


def test_the_tokenizer_gives_llama_cpps_own_ids(smollm2: Path, real: LlamaCppBackend) -> None:
    import ctypes

    tokenizer = load_tokenizer(smollm2)
    library = llama()
    vocab = library.llama_model_get_vocab(real._model.pointer)
    for text in TEXTS:
        raw = text.encode()
        tokens = (library.llama_token * 512)()
        count = library.llama_tokenize(vocab, raw, len(raw), tokens, 512, False, False)
        assert tokenizer(text, add_special_tokens=False).input_ids == tokens[:count], text
    for token in range(0, real.vocabulary, 97):
        text = ctypes.string_at(library.llama_vocab_get_text(vocab, token)).decode()
        assert tokenizer.convert_ids_to_tokens(token) == text


def test_a_type_of_its_own_is_made_once_and_a_file_of_that_type_is_used_as_it_is(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from neuroscope.models import llamacpp_file

    monkeypatch.setattr(llamacpp_file, "cache_dir", lambda: tmp_path)
    assert declared_type(smollm2) == "q4_1"
    assert llamacpp_file.gguf_file(smollm2) == smollm2
    assert llamacpp_file.gguf_file(smollm2, "q4_1") == smollm2
    with caplog.at_level(logging.WARNING):
        made = llamacpp_file.gguf_file(smollm2, "q8_0")
    assert declared_type(made) == "q8_0"
    assert "Making q8_0 of SmolLM2-135M-Instruct.Q4_1.gguf (q4_1, 98 MB), once." in caplog.text
    assert "rounded twice" in caplog.text
    state = made.stat().st_mtime_ns
    assert llamacpp_file.gguf_file(smollm2, "q8_0") == made
    assert made.stat().st_mtime_ns == state
    assert [path.name for path in (tmp_path / "requantised").glob("[!.]*")] == [made.name]


def test_two_at_once_make_one_file_and_what_a_killed_run_left_is_removed(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroscope.models import llamacpp_file

    monkeypatch.setattr(llamacpp_file, "cache_dir", lambda: tmp_path)
    ran: list[str] = []

    def make(path: Path, own: str, made: Path, quantization: str) -> None:
        ran.append(quantization)
        assert not [*made.parent.glob("*.tmp"), *made.parent.glob(".*.tmp")]
        both.wait(5)
        made.write_bytes(b"made")

    monkeypatch.setattr(llamacpp_file, "_requantise", make)
    folder = tmp_path / "requantised"
    folder.mkdir()
    name = f"{tiny_gguf.stem}-{file_key(tiny_gguf)}-q8_0.gguf"
    (folder / f".{name}.123-abcd.tmp").write_bytes(b"half")
    both = threading.Event()
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(llamacpp_file.gguf_file(tiny_gguf, "q8_0")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    both.set()
    for thread in threads:
        thread.join(30)
    assert (ran, found) == (["q8_0"], [folder / name] * 2)


def test_a_cache_that_cannot_be_written_is_named_with_what_to_set(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neuroscope.models import llamacpp_file

    (tmp_path / "file").touch()
    monkeypatch.setattr(llamacpp_file, "cache_dir", lambda: tmp_path / "file")
    with pytest.raises(SourceError, match=r"cannot be written.*Set NEUROSCOPE_CACHE"):
        llamacpp_file.gguf_file(tiny_gguf, "q8_0")


def test_a_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path / "model")
    with pytest.raises(ModelError, match=r"is no GGUF file.*--model PATH\.gguf, or use --backend torch"):
        open_backend(folder, LAYER, backend="llamacpp", device="cpu", dtype="float32", quantization="q4_k_m")


def test_a_layer_that_is_not_there_is_named(tiny_gguf: Path) -> None:
    with pytest.raises(ModelError, match="Layer 3 was asked for; this model has layers 0 to 2"):
        LlamaCppBackend(tiny_gguf, LAYERS)


@pytest.mark.parametrize("damage", ["cut", "cut in the header", "magic", "empty", "words"])
def test_a_damaged_file_is_named_and_nothing_crashes(damage: str, tiny_gguf: Path, tmp_path: Path) -> None:
    whole = tiny_gguf.read_bytes()
    damaged = {
        "cut": whole[:-5000],
        "cut in the header": whole[:2000],
        "magic": b"FUGG" + whole[4:],
        "empty": b"",
        "words": b"<html>Sign in to download</html>" * 50,
    }[damage]
    path = tmp_path / "bad.gguf"
    path.write_bytes(damaged)
    with pytest.raises(
        ModelError, match=r"llama\.cpp cannot load .*bad\.gguf: .*Fetch or convert the file anew"
    ):
        open_backend(path, LAYER, backend="llamacpp", device="cpu", dtype="float32", quantization="none")


def test_a_file_of_which_llama_cpp_dies_is_named_and_the_process_lives(
    tiny_llama: tuple[Any, Any], tmp_path: Path
) -> None:
    """Two tokens of one text: an assertion of llama.cpp ends the process that reads them."""
    path = write_gguf(tmp_path / "twice.gguf", *tiny_llama)
    whole = path.read_bytes()
    first, second = (len(text).to_bytes(8, "little") + text for text in (b"A", b"B"))
    assert whole.count(second) == 1
    path.write_bytes(whole.replace(second, first, 1))
    with pytest.raises(
        ModelError, match=r"twice\.gguf: it dies of it .*ASSERT.*Fetch or convert the file anew"
    ):
        open_backend(path, LAYER, backend="llamacpp", device="cpu", dtype="float32", quantization="none")


@pytest.mark.parametrize("length", [0, 1, 2, 3, 70, 2**31, 2**32 - 1])
def test_whatever_context_a_file_names_it_runs_or_is_refused(
    length: int, tiny_llama: tuple[Any, Any], tmp_path: Path
) -> None:
    """In llama.cpp an assertion on a context of one position ends the process."""
    path = write_gguf(tmp_path / "context.gguf", *tiny_llama)
    whole = path.read_bytes()
    at = whole.index(b"llama.context_length") + len(b"llama.context_length") + 4
    path.write_bytes(whole[:at] + length.to_bytes(4, "little") + whole[at + 4 :])
    try:
        backend = LlamaCppBackend(path, LAYER)
    except ModelError as error:
        assert length < 2 or length >= 2**31, error  # noqa: PT017
        return
    assert 0 < backend.context_length == min(length, MOST)
    assert backend.forward([5] * min(length, 70)).residual.shape == (min(length, 70), D_MODEL)
    with pytest.raises(ModelError, match="the context is"):
        backend.forward([5] * backend.context_length)


def test_weights_that_are_no_numbers_are_refused_when_the_file_is_opened(
    tiny_llama: tuple[Any, Any], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "broken.gguf", *tiny_llama)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) - len(whole) // 2))
    with pytest.raises(ModelError, match=r"broken\.gguf: .* is not finite. Fetch the model anew"):
        LlamaCppBackend(path, LAYERS - 1)


def test_a_trial_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    """However that ends; a large file takes a while."""
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)  # which nobody writes: it is opened for ever
    script = (
        "import sys; from pathlib import Path; from neuroscope.models.llamacpp_trial import must_survive;"
        "must_survive(Path(sys.argv[1]))"
    )
    env = {**os.environ, "NEUROSCOPE_CACHE": str(native.cache_dir())}
    process = psutil.Popen([sys.executable, "-c", script, str(pipe)], env=env)
    deadline = time.monotonic() + 60
    while not (children := process.children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert children
    assert psutil.wait_procs(children, timeout=30)[1] == []


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    llama.cache_clear()
    try:
        with pytest.raises(ModelError, match=r"pip install 'neuroscope-sae\[llamacpp\]'"):
            llama()
    finally:
        llama.cache_clear()
