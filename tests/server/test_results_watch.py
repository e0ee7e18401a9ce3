"""Results that are replaced while the server runs: a whole set or none, in one step, and never another SAE's."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent
import psutil
import pytest
from damages import DAMAGES
from scripted import FINGERPRINT, scripted
from scripted_results import label_of, write_results
from serving import EventStream, Server, http, serving, wait_until, write_config

from neuroscope import settings
from neuroscope.known import Known, Seen
from neuroscope.server.loaded import Loaded, Source
from neuroscope.server.loading import source_of
from neuroscope.server.results_watch import LONGEST_PAUSE, PATIENCE, ResultsWatch
from neuroscope.server.service import Service
from neuroscope.server.stream import Entry, GeneratedToken
from neuroscope.server.views import View

NAMES = tuple(f"feature_{index}" for index in range(32))


class Folder:
    """A results folder in numbers: its state, what reading it gives, and how often it was read."""

    def __init__(self) -> None:
        self.state = 0
        self.refused: str | None = None
        self.reads = 0
        self.while_reading: Callable[[], None] = lambda: None

    def look(self) -> Seen:
        return (self.state,)

    def find(self, before: Known | None) -> Known:
        self.reads += 1
        seen = self.look()
        self.while_reading()
        labels = NAMES if self.refused or not self.state else (f"read from {self.state}", *NAMES[1:])
        said = () if self.refused is None else (self.refused,)
        if self.refused and before is not None:
            labels = before.labels
        return Known(None, None, labels, {}, None, said, refused=self.refused, seen=seen)


class Served:
    """The part of a service that the watch knows."""

    def __init__(self, folder: Folder) -> None:
        source = Source(folder.look, folder.find)
        self.serving: Loaded | None = dataclasses.replace(scripted(), source=source).with_known(
            folder.find(None)
        )
        self.swaps = 0

    def use_known(self, known: Known) -> None:
        assert self.serving is not None
        self.serving = self.serving.with_known(known)
        self.swaps += 1

    @property
    def first_label(self) -> str:
        assert self.serving is not None
        return self.serving.labels[0]

    @property
    def degraded(self) -> tuple[str, ...]:
        assert self.serving is not None
        return self.serving.degraded


@pytest.fixture
def folder() -> Folder:
    return Folder()


@pytest.fixture
def served(folder: Folder) -> Served:
    return Served(folder)


@pytest.fixture
def watch(served: Served, folder: Folder) -> ResultsWatch:
    made = ResultsWatch(served, 1)  # type: ignore[arg-type]
    folder.reads = 0
    return made


def look(watch: ResultsWatch, times: int = 1) -> None:
    for _ in range(times):
        watch.look(asked=False)


def test_files_that_do_not_change_are_not_read(watch: ResultsWatch, folder: Folder) -> None:
    look(watch, 100)
    assert folder.reads == 0


def test_a_new_set_is_read_once_it_has_stopped_to_change(
    watch: ResultsWatch, folder: Folder, served: Served
) -> None:
    for state in (1, 2, 3):
        folder.state = state
        look(watch)
    assert folder.reads == 0
    look(watch)
    assert (folder.reads, served.first_label) == (1, "read from 3")
    look(watch, 10)
    assert (folder.reads, served.swaps) == (1, 1)


def test_what_is_written_while_it_is_read_is_not_used(
    watch: ResultsWatch, folder: Folder, served: Served
) -> None:
    def write() -> None:
        folder.state = 2
        folder.while_reading = lambda: None

    folder.state, folder.while_reading = 1, write
    look(watch, 2)
    assert (folder.reads, served.swaps) == (1, 0)
    look(watch, 2)
    assert served.first_label == "read from 2"


def test_who_asks_while_it_is_written_is_answered_after_it(
    watch: ResultsWatch, folder: Folder, served: Served
) -> None:
    def write() -> None:
        folder.state = 2
        folder.while_reading = lambda: None

    folder.state, folder.while_reading = 1, write
    running = gevent.spawn(watch.run)
    watch.ask()
    with gevent.Timeout(60):
        while served.swaps == 0:
            gevent.sleep(0.01)
    running.kill()
    assert served.first_label == "read from 2"


def test_what_fails_is_not_tried_again_on_the_same_files(
    watch: ResultsWatch, folder: Folder, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of ours")

    folder.state, folder.while_reading = 1, fail
    watch._every_s = 0.001
    running = gevent.spawn(watch.run)
    with gevent.Timeout(60):
        while "a fault of ours" not in caplog.text:
            gevent.sleep(0.01)
        gevent.sleep(0.1)
        assert folder.reads == 1
        folder.state, folder.while_reading = 2, lambda: None
        while served.swaps == 0:
            gevent.sleep(0.01)
    running.kill()


def test_half_of_a_set_is_no_damage_and_no_news(watch: ResultsWatch, folder: Folder, served: Served) -> None:
    folder.state, folder.refused = 1, "made by different runs"
    look(watch, PATIENCE)
    assert folder.reads == PATIENCE - 1
    assert served.degraded == ()
    folder.state, folder.refused = 2, None
    look(watch, 2)
    assert (served.first_label, served.degraded) == ("read from 2", ())


def test_damage_that_stays_is_said_once_and_what_was_known_stays(
    watch: ResultsWatch, folder: Folder, served: Served
) -> None:
    folder.state = 1
    look(watch, 2)
    folder.state, folder.refused = 2, "cut short"
    look(watch, 1 + PATIENCE)
    assert (served.first_label, served.degraded, served.swaps) == ("read from 1", ("cut short",), 2)
    look(watch, 50)
    assert served.swaps == 2


def test_a_refusal_is_tried_again_though_no_file_changes(
    watch: ResultsWatch, folder: Folder, served: Served
) -> None:
    folder.state, folder.refused = 1, "open in another program"
    look(watch, 200)
    assert 5 < folder.reads < 20, "and ever more seldom"
    folder.refused = None
    look(watch, LONGEST_PAUSE)
    assert (served.first_label, served.degraded) == ("read from 1", ())


def test_asking_reads_at_once_and_says_how_it_is(watch: ResultsWatch, folder: Folder, served: Served) -> None:
    watch.look(asked=True)
    assert (folder.reads, served.swaps) == (1, 1)
    folder.state, folder.refused = 1, "cut short"
    watch.look(asked=True)
    assert served.degraded == ("cut short",)


def test_what_was_loaded_anew_meanwhile_is_not_replaced(
    watch: ResultsWatch, folder: Folder, served: Served
) -> None:
    def restart() -> None:
        folder.while_reading = lambda: None
        assert served.serving is not None
        served.serving = served.serving.with_known(folder.find(None))

    folder.state, folder.while_reading = 1, restart
    look(watch, 2)
    assert served.swaps == 0
    assert served.first_label == "read from 1"


def test_nothing_is_looked_at_before_there_is_something(watch: ResultsWatch, served: Served) -> None:
    served.serving = None
    watch.look(asked=True)
    served.serving = scripted()
    watch.look(asked=True)
    assert served.swaps == 0


def test_labels_and_statistics_of_an_event_are_of_one_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of before keeps what it wrote; the writer of now writes all anew. The old database is closed."""
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    settled = settings.load(config=write_config(tmp_path))
    write_results(settled.results)
    source = source_of(settled, FINGERPRINT)
    service = Service(settled.serve, settled.ranking)  # type: ignore[arg-type]
    loaded = dataclasses.replace(scripted(), source=source).with_known(source.find(None))
    service.load(lambda _enter_stage: loaded)
    (step,) = list(loaded.engine.generate(loaded.engine.prepare("a"), _sampling()))[:1]
    entry = Entry(1, GeneratedToken("chatcmpl-1", 7, step))
    view = View(dataclasses.replace(_ranking(), filter="surprise"))
    before = json.loads(service.write_event(entry, view).partition(b"data: ")[2])
    old = service.loaded.results
    assert old is not None
    write_results(settled.results, "another name of", stats=_other_statistics())
    service.use_known(source.find(service.loaded.known))
    after = json.loads(service.write_event(entry, view).partition(b"data: ")[2])
    names = [
        {f["index"]: (f["label"], f["surprise"]) for f in event["top_features"]} for event in (before, after)
    ]
    assert names[0][20] == ("label of 20", pytest.approx(0.5, abs=1e-3)), "(2.5 - 2) / 1"
    assert names[1][20] == ("another name of 20", pytest.approx(-1.5, abs=1e-3)), "(2.5 - 4) / 1"
    assert service.look_up(lambda loaded: loaded.labels[20]) == "another name of 20"
    with pytest.raises(Exception, match="closed"):
        old.feature(1)


def _sampling() -> Any:
    from neuroscope.models.sampling_options import Sampling

    return Sampling()


def _ranking() -> Any:
    from neuroscope.ranking import Ranking

    return Ranking()


def _other_statistics() -> Any:
    """Everything fires at 3 and 5 by turns."""
    import scripted_results

    return scripted_results.statistics(shift=2.0)


OFTEN = {"results_poll_s": 0.05}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server without results at first, and its results folder."""
    root = tmp_path_factory.mktemp("watched")
    with serving(root, env={"SCRIPTED_RESULTS": "1"}, serve=OFTEN) as server:
        yield server, root / "results/tiny"
        assert "Traceback" not in server.output


@contextmanager
def changed(server: Server, what: str) -> Iterator[None]:
    """Waits until /readyz says something else."""
    before = server.get("/readyz").json()
    yield
    wait_until(lambda: server.get("/readyz").json() != before, what=what)


class Follower:
    """One subscriber through all changes."""

    def __init__(self, server: Server, stream: EventStream) -> None:
        self._server, self._stream = server, stream

    def first_features(self) -> tuple[list[str], list[str]]:
        """Labels of an answer's first token, and what its end says is degraded."""
        self._server.chat("a")
        events = self._stream.until("generation_complete")
        return [feature["label"] for feature in events[0].data["top_features"]], events[-1].data["degraded"]


@pytest.fixture
def follower(watched: tuple[Server, Path]) -> Iterator[Follower]:
    with EventStream(watched[0].features_port) as stream:
        next(stream.blocks())
        yield Follower(watched[0], stream)


def test_results_that_appear_and_change_are_shown_without_a_restart(
    watched: tuple[Server, Path], follower: Follower
) -> None:
    server, folder = watched
    assert server.get("/readyz").json()["stats"] is None
    nameless = server.get("/v1/features/labels")
    shown, degraded = follower.first_features()
    assert shown[0] == server.get("/v1/features/3").json()["label"] == "feature_3"
    assert len(degraded) == 2

    with changed(server, "results that appear"):
        write_results(folder)
    assert follower.first_features() == (["label of 3", "an imported name", label_of(20)], [])
    named = server.get("/v1/features/labels")
    assert named.json()["labels"]["10"] == "label of 10"
    assert named.headers["etag"] != nameless.headers["etag"]
    assert server.get("/readyz").json()["stats"] == {"source": "measured", "tokens": 500}

    write_results(folder, "another name of")
    wait_until(lambda: "another name of 3" in follower.first_features()[0], what="the new set")
    assert server.get("/v1/features/search?q=ANOTHER").json()["total"] == 22
    assert server.get("/v1/features/10").json()["labels"][0]["label"] == "another name of 10"


def test_results_that_do_not_fit_or_go_change_no_label_and_are_named(
    watched: tuple[Server, Path], follower: Follower, tmp_path: Path
) -> None:
    server, folder = watched
    write_results(folder, "third name of")
    wait_until(lambda: "third name of 3" in follower.first_features()[0], what="the right set")
    stranger = dataclasses.replace(FINGERPRINT, sae_sha256="f" * 64)
    other = write_results(tmp_path / "other", "a stranger's")

    def overwrite() -> None:
        write_results(folder, "third name of")
        wait_until(lambda: server.get("/readyz").json()["status"] == "ready", what="the right set again")
        with (folder / "results.duckdb").open("r+b") as file:
            file.write(other.read_bytes())
            file.truncate()

    for happens, why in (
        (
            lambda: write_results(folder, "a stranger's", fingerprint=stranger),
            "results.duckdb is about something else and not used (SAE file: made with ffff",
        ),
        (overwrite, "is not the file that manifest.json describes"),
        (lambda: shutil.rmtree(folder), "There is no results database"),
    ):
        happens()
        wait_until(lambda why=why: why in str(server.get("/readyz").json()["degraded"]), what=why)
        shown, (said,) = follower.first_features()
        assert "third name of 3" in shown
        assert not any("stranger" in label for label in shown)
        assert why in said
        assert "NEUROSCOPE_PAIRING=tiny snakemake --cores 4 labels" in said
        page = server.get("/v1/features/10")
        assert (page.status_code, page.json()["label"]) == (200, "third name of 10")
        assert page.json()["mean_firing"] == 2
        assert page.json()["degraded"] == http.get(f"{server.chat_url}/readyz").json()["degraded"] == [said]


def test_whatever_becomes_of_the_folder_pages_and_answers_go_on(tmp_path: Path) -> None:
    """Each kind of damage to results in use, and whole ones after it."""
    folder, made = tmp_path / "results/tiny", tmp_path / "made"
    write_results(made)
    with serving(tmp_path, env={"SCRIPTED_RESULTS": "1"}, serve={"results_poll_s": 0}) as server:

        def degraded_after_a_hangup() -> list[str]:
            server.process.send_signal(signal.SIGHUP)
            said: list[str] = server.get("/readyz").json()["degraded"]
            return said

        for name, (damage, reason) in DAMAGES.items():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(made, folder)
            wait_until(lambda: degraded_after_a_hangup() == [], what=f"whole results before {name}")
            damage(folder)
            wait_until(lambda reason=reason: reason in str(degraded_after_a_hangup()), what=name)
            page = server.get("/v1/features/10?examples=all").json()
            assert (page["label"], page["balanced_accuracy"]) == (
                "label of 10",
                0.6 if page["scores"] else None,
            ), name
            assert server.get("/v1/features/search?q=label of 10").json()["total"] == 1, name
            assert server.chat("a").status_code == 200, name
        (worker,) = psutil.Process(server.process.pid).children()
        held = [file.path for file in worker.open_files() if "results.duckdb" in file.path]
        assert len(held) <= 2, "DuckDB's and ours: those of before are closed"
        assert "Traceback" not in server.output


def test_a_database_cut_under_the_server_is_a_503_in_shape_until_it_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "results/tiny"
    write_results(folder)
    with serving(tmp_path, env={"SCRIPTED_RESULTS": "1"}, serve={"results_poll_s": 0}) as server:
        with (folder / "results.duckdb").open("r+b") as file:
            file.truncate(4096)
        for path in ("/v1/features/10", "/v1/features/search?q=label"):
            answer = server.get(path)
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "results_unreadable"
            assert "It was cut or changed in place" in answer.json()["error"]["message"]
        assert server.get("/v1/features/labels").json()["labels"]["10"] == "label of 10"
        assert server.chat("a").status_code == 200
        assert "Traceback" not in server.output
