"""An engine that hangs or dies: what its callers are told, what /readyz says, and that it comes back once."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent
import pytest
from documented import operation, validate
from scripted import scripted
from serving import EventStream, Server, http, serving, wait_until, write_config
from tiny_pairing import pairing

from neuroscope import settings
from neuroscope.errors import ModelError
from neuroscope.models.sampling_options import Sampling
from neuroscope.ranking import Ranking
from neuroscope.server import watchdog
from neuroscope.server.generation import Generation
from neuroscope.server.loaded import Loaded
from neuroscope.server.loading import loader
from neuroscope.server.problems import Problem
from neuroscope.server.service import Service
from neuroscope.server.watchdog import Watchdog

CHAT = "/v1/chat/completions"
PRIVATE = "a-private-word"


class Watched:
    """A service in this process, with a watchdog that is in a hurry. Each load is written down."""

    def __init__(
        self,
        *,
        hang_s: float,
        stable_s: float = 1000,
        on_load: Callable[[int], None] = lambda _number: None,
        make: Callable[[], Loaded] = scripted,
    ) -> None:
        serve = replace(settings.load().serve, hang_s=hang_s)
        self.service = Service(serve, Ranking("frequency", 0.5, 10))
        self.loads = 0
        self.engines: list[weakref.ref[Any]] = []
        self.on_load = on_load
        self.make = make
        self.service.load(self.load)
        self.dog = Watchdog(self.service, self.load, turn_s=0.01, backoff_s=0.05, stable_s=stable_s)
        self.watching = gevent.spawn(self.dog.run)

    def load(self, _enter_stage: Callable[[str], None]) -> Loaded:
        self.loads += 1
        self.on_load(self.loads)
        loaded = self.make()
        self.engines.append(weakref.ref(loaded.engine))
        return loaded

    def ask(self, content: str, max_tokens: int | None = None) -> Generation:
        prompt = self.service.prepare([{"role": "user", "content": content}])
        place = self.service.inference.take_place()
        return self.service.begin("t-", prompt, Sampling(max_tokens=max_tokens), place)

    def answer(self, content: str, max_tokens: int | None = None) -> str:
        steps = self.ask(content, max_tokens).steps(60.0)
        return "".join(step.text for step in steps if step is not None)

    def code(self, content: str) -> str:
        """What the request fails with."""
        with pytest.raises(Problem) as failed:
            self.answer(content)
        return failed.value.code

    def status(self) -> str:
        return "ready" if self.service.sickness is None else self.service.sickness.status

    def wait_for(self, status: str) -> None:
        with gevent.Timeout(60):
            while self.status() != status:
                gevent.sleep(0.005)


@contextmanager
def watched(**options: Any) -> Iterator[Watched]:
    it = Watched(**options)
    try:
        yield it
    finally:
        it.service.stopping = True
        it.watching.join(60)


def test_slow_is_not_hung() -> None:
    with watched(hang_s=0.5) as it:
        assert it.answer("[prefill=1] a b c") == " a b c"
        assert it.answer("[delay=0.1] a b c d e f g h i j") == " a b c d e f g h i j"
        assert it.loads == 1


def test_without_a_limit_nothing_hangs() -> None:
    with watched(hang_s=0) as it:
        assert it.answer("[hang=0.7] late") == " late"
        assert it.loads == 1


def test_an_idle_model_does_not_hang() -> None:
    with watched(hang_s=0.05) as it:
        gevent.sleep(0.3)
        assert (it.loads, it.status()) == (1, "ready")


def test_time_in_which_the_whole_process_stood_still_is_not_counted() -> None:
    with watched(hang_s=1) as it:
        asked = it.ask("[hang=0.6] late")
        gevent.sleep(0.05)
        time.sleep(1.5)  # the hub is stopped, as by SIGSTOP or a laptop's lid
        assert "".join(step.text for step in asked.steps(60.0) if step) == " late"
        assert it.loads == 1


def test_a_thread_that_wakes_up_late_says_nothing_and_ends() -> None:
    with watched(hang_s=0.2) as it:
        events = it.service.stream
        assert it.code("[hang=1] late words") == "engine_hung"
        it.wait_for("restarting")
        it.wait_for("ready")
        assert it.answer("in time") == "in time"
        newest = events.newest
        with gevent.Timeout(60):
            while it.engines[0]() is not None:  # held by the thread that hangs
                gevent.sleep(0.01)
                gc.collect()
        assert events.newest == newest
        assert it.answer("still well") == "still well"


def test_a_dead_engine_is_gone_from_memory_before_the_next_is_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL", "neuroscope.server.generation")  # pytest keeps records, tracebacks and all
    alive: list[bool] = []

    def look(number: int) -> None:
        alive.append(number > 1 and it.engines[0]() is not None)

    with watched(hang_s=30, on_load=look) as it:
        kept = it.service.loaded
        assert it.code("[die]") == "generation_failed"
        assert it.status() == "ready", "one failure is not the end"
        assert it.code("anything") == "generation_failed"
        it.wait_for("restarting")
        assert kept.labels == it.service.loaded.labels
        del kept
        it.wait_for("ready")
        assert alive == [False, False]
        assert it.answer("well") == "well"


def test_a_real_model_that_has_died_is_gone_from_memory_too(
    tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "neuroscope.server.generation")  # as above
    load = loader(
        settings.load(config=write_config(tmp_path, pairing=pairing(tiny_gemma_path, tiny_sae_path)))
    )
    models: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    def make() -> Loaded:
        alive.extend(model() is not None for model in models)
        loaded = load(lambda _stage: None)
        models.append(weakref.ref(loaded.engine.backend))
        return loaded

    def fail(_ids: list[int]) -> Any:
        raise RuntimeError("device-side assert")

    with watched(hang_s=60, make=make) as it:
        assert it.answer("hello", max_tokens=3) is not None
        it.service.loaded.engine.backend.forward = fail  # type: ignore[method-assign]
        for _ in range(2):
            assert it.code("hello") == "generation_failed"
        it.wait_for("restarting")
        it.wait_for("ready")
        assert alive == [False]
        assert it.answer("hello", max_tokens=3) is not None


def test_requests_that_fail_again_and_again_do_not_end_a_well_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with watched(hang_s=30) as it:
        for _ in range(7):
            assert it.code("[fail=0] a") == "generation_failed"
            gevent.sleep(0.05)
        assert it.answer("well") == "well"
        assert it.loads == 1
    assert "the model itself passes a test" in caplog.text


def test_refusals_in_words_are_no_failures() -> None:
    with watched(hang_s=30) as it:
        inference = it.service.inference
        for error in (ModelError("no"), Problem(503, "no"), None):
            inference._count(_run(results=0), error)
        assert inference.failures == 0


def test_an_engine_that_dies_again_soon_is_not_loaded_a_third_time() -> None:
    with watched(hang_s=0.2) as it:
        assert it.code("[hang=0.6]") == "engine_hung"
        it.wait_for("ready")
        assert it.code("[hang=0.6]") == "engine_hung"
        assert it.status() == "failed"
        assert it.code("anything") == "engine_failed"
        it.watching.join(60)
        assert it.loads == 2


def test_an_engine_that_was_well_for_long_may_be_loaded_again() -> None:
    with watched(hang_s=0.2, stable_s=0.1) as it:
        for loads in (2, 3):
            assert it.code("[hang=0.6]") == "engine_hung"
            it.wait_for("ready")
            assert it.loads == loads
            with gevent.Timeout(60):
                while it.dog._well_s < 0.1:
                    gevent.sleep(0.01)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("The file is gone. Fetch it."), "The file is gone. Fetch it."),
        (ValueError("secret"), "ValueError"),
    ],
)
def test_what_cannot_be_loaded_anew_has_failed(error: Exception, said: str) -> None:
    def fail_later(number: int) -> None:
        if number > 1:
            raise error

    with watched(hang_s=0.2, on_load=fail_later) as it:
        assert it.code("[hang=0.6]") == "engine_hung"
        it.wait_for("failed")
        assert it.service.sickness is not None
        assert said in it.service.sickness.reason
        assert "secret" not in it.service.sickness.reason
        assert "NEUROSCOPE_PAIRING=scripted gunicorn neuroscope.wsgi" in str(it.service.sickness.next)


def test_what_takes_for_ever_to_load_anew_has_failed_and_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "RELOAD_S", 0.3)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # takes as long on a busy machine
    goes_on, loaded = threading.Event(), []

    def hang_later(number: int) -> None:
        if number > 1:
            goes_on.wait(60)
        loaded.append(number)

    with watched(hang_s=0.2, on_load=hang_later) as it:
        assert it.code("[hang=0.6]") == "engine_hung"
        it.wait_for("failed")
        assert it.service.sickness is not None
        assert "TimeoutError" in it.service.sickness.reason
        goes_on.set()
        with gevent.Timeout(60):
            while loaded != [1, 2]:
                gevent.sleep(0.01)
        gevent.sleep(0.1)
        assert it.code("anything") == "engine_failed"


def _run(results: int) -> Any:
    from neuroscope.server.inference import _Run

    class Silent:
        cancelled, signs = False, 0

    return _Run(Silent(), results=results)  # type: ignore[arg-type]


def ready(server: Server) -> dict[str, Any]:
    """What /readyz says, the same on both ports, with its status."""
    answer = server.get("/readyz")
    assert (answer.status_code == 200) == (answer.json()["status"] in ("ready", "degraded"))
    described = operation("features", "get", "/readyz").responses[answer.status_code]
    validate("features", described["content"]["application/json"]["schema"], answer.json())
    return {"code": answer.status_code, **answer.json()}


def wait_for(server: Server, status: str) -> dict[str, Any]:
    return wait_until(lambda: (said := ready(server))["status"] == status and said, what=status) or {}


def assert_known_without_a_model(server: Server) -> None:
    for path in ("/v1/features/labels", "/v1/features/5", "/v1/features/search?q=label"):
        assert server.get(path).status_code == 200
    for url in (
        f"{server.chat_url}/healthz",
        f"{server.features_url}/healthz",
        f"{server.chat_url}/v1/models",
    ):
        assert http.get(url).status_code == 200


def refusals(server: Server) -> list[Any]:
    """The answers of every route that needs the model."""
    return [
        server.chat("anything"),
        server.chat("anything", stream=True),
        http.post(f"{server.chat_url}/v1/completions", json={"prompt": "anything"}),
        http.post(f"{server.features_url}/v1/features/encode", json={"text": "anything"}),
    ]


def test_a_model_that_hangs_is_given_up_loaded_anew_and_given_up_for_good(tmp_path: Path) -> None:
    env = {"SCRIPTED_RELOAD_SECONDS": "4"}  # the time to look at everything meanwhile
    with (
        serving(tmp_path, serve={"hang_s": 1}, env=env) as server,
        EventStream(server.features_port) as events,
    ):
        with ThreadPoolExecutor(2) as pool:
            hung = pool.submit(server.chat, f"[hang=60] {PRIVATE}", stream=True)
            wait_until(lambda: ready(server)["queue"]["running"], what="the model to be busy")
            waiting = pool.submit(server.chat, "waiting")
            last, end = hung.result().text.strip().split("\n\n")[-2:]
            assert '"code":"engine_hung"' in last
            assert end == "data: [DONE]"
            assert waiting.result().status_code == 503
            assert waiting.result().json()["error"]["code"] == "engine_restarting"
            assert int(waiting.result().headers["retry-after"]) > 0
        assert [event.name for event in events.take(2)] == ["generation_error"] * 2
        said = ready(server)
        assert (said["code"], said["status"]) == (503, "restarting")
        assert "no sign of life for 1 s" in said["reason"]
        assert said["since"].startswith("20")
        assert said["stage"] in ("given up", "reading the script")
        assert said["error"]["code"] == "engine_restarting"
        for refused in refusals(server):
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "engine_restarting"
        assert_known_without_a_model(server)
        wait_for(server, "ready")
        assert server.chat("well again").json()["choices"][0]["message"]["content"] == "well again"
        assert events.until("generation_complete")[-1].data["finish_reason"] == "stop"

        again = server.chat(f"[hang=60] {PRIVATE}")
        assert again.status_code == 500
        assert again.json()["error"]["code"] == "engine_hung"
        assert again.headers["x-should-retry"] == "false"
        said = ready(server)
        assert (said["code"], said["status"]) == (503, "failed")
        assert "NEUROSCOPE_PAIRING=scripted gunicorn neuroscope.wsgi" in said["next"]
        for refused in refusals(server):
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "engine_failed"
            assert refused.headers["x-should-retry"] == "false"
        assert_known_without_a_model(server)
        assert server.stop() == 0
        assert PRIVATE not in server.output
        assert "It is loaded anew in" in server.output
        assert "Requests for the model are refused from now on." in server.output
        assert "Traceback" not in server.output


def test_an_engine_that_dies_is_loaded_anew_and_the_process_can_end_meanwhile(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for stream in (False, True):
            died = server.chat(f"[die] {PRIVATE}", stream=stream)
            assert '"code":"generation_failed"' in died.text
        assert "a test of the model (RuntimeError)" in wait_for(server, "restarting")["reason"]
        wait_for(server, "ready")
        assert server.chat("well again").status_code == 200
        encoded = http.post(f"{server.features_url}/v1/features/encode", json={"text": "two words"})
        assert len(encoded.json()["tokens"]) == 2
        server.chat("[die]")
        server.chat("[die]")
        wait_for(server, "failed")
        assert server.stop() == 0
        assert PRIVATE not in server.output


def test_the_process_ends_while_the_engine_is_being_loaded_anew(tmp_path: Path) -> None:
    patient = {"GUNICORN_CMD_ARGS": "--graceful-timeout 120", "SCRIPTED_RELOAD_SECONDS": "120"}
    with serving(tmp_path, serve={"hang_s": 0.5}, env=patient) as server:
        assert server.chat("[hang=120]").json()["error"]["code"] == "engine_hung"
        wait_until(lambda: ready(server)["stage"] == "reading the script", what="the second load")
        started = time.monotonic()
        assert server.stop(seconds=120) == 0
        assert time.monotonic() - started < 60
        assert "SIGKILL" not in server.output


def test_where_nothing_can_be_loaded_anew_another_process_takes_over_once(tmp_path: Path) -> None:
    """As after a failed assertion on a GPU, whose driver answers this process no more."""
    env = {"SCRIPTED_RELOAD_ERROR": "device-side assert", "GUNICORN_CMD_ARGS": "--graceful-timeout 120"}
    with serving(tmp_path, serve={"hang_s": 0.5}, env=env) as server:
        with EventStream(server.features_port) as events:
            first = server.chat("[hang=120]")
            assert first.json()["error"]["code"] == "engine_hung"
            assert [event.name for event in events.events()] == ["generation_error", "shutdown"]
        wait_until(lambda: server.output.count("Neuroscope is ready.") == 2, what="another process")
        assert server.chat("well again").status_code == 200
        assert server.chat("[hang=120]").json()["error"]["code"] == "engine_hung"
        assert "could not be loaded anew (RuntimeError)" in wait_for(server, "failed")["reason"]
        assert_known_without_a_model(server)
        assert server.stop() == 0


def test_a_process_whose_hub_hangs_is_replaced_by_gunicorn(tmp_path: Path) -> None:
    with serving(tmp_path, env={"GUNICORN_CMD_ARGS": "--timeout 8"}) as server:
        with pytest.raises(Exception, match=r"disconnected|reset|closed"):
            server.chat("[gil=60]")
        wait_until(lambda: server.output.count("Neuroscope is ready.") == 2, what="a new worker")
        assert server.chat("well again").status_code == 200
        assert "WORKER TIMEOUT" in server.output
