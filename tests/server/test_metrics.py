"""/metrics: after requests whose cost is known, the numbers are those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import EventStream, Server, http, raw_request, serving, status_of, wait_until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """Every sample by its name and labels; the text must parse and name none twice."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


class Page:
    """/metrics of one moment."""

    def __init__(self, url: str) -> None:
        response = http.get(f"{url}/metrics")
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.samples = samples(response.text)

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((f"neuroscope_{name}", frozenset(labels.items())), 0.0)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose every request is made here. The variable would make prometheus_client write files."""
    env = {"PROMETHEUS_MULTIPROC_DIR": "/nowhere"}
    folder = tmp_path_factory.mktemp("metrics")
    with serving(folder, serve={"queue": 1, "ring": 16, "max_streams": 3}, env=env) as running:
        yield running


def test_a_known_script_of_requests_gives_known_numbers(counted: Server) -> None:
    before = Page(counted.chat_url)
    assert counted.chat("a b c").status_code == 200  # 3 tokens and the end
    assert counted.chat("a b c d", stream=True).status_code == 200  # 4 tokens and the end
    assert counted.chat("a b c", max_tokens=2).status_code == 200
    assert counted.chat("[fail=1] a b c").status_code == 500  # 1 token
    assert counted.chat("").status_code == 200  # the end alone
    wait_until(lambda: Page(counted.chat_url)("generations_total", finish_reason="stop") == 3)
    after = Page(counted.features_url)

    def grown(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    assert grown("generated_tokens_total") == 3 + 4 + 2 + 1
    assert grown("prompt_tokens_total") == 3 + 4 + 3 + 4
    reasons = {
        reason: grown("generations_total", finish_reason=reason) for reason in ("stop", "length", "error")
    }
    assert reasons == {"stop": 3, "length": 1, "error": 1}
    assert grown("generations_total", finish_reason="cancelled") == 0
    assert grown("first_token_seconds_count") == 5
    assert grown("first_token_seconds_bucket", le="+Inf") == 5
    assert grown("token_seconds_count") == 3 + 4 + 1 + 0 + 0
    assert grown("sae_seconds_count") == 4 + 5 + 2 + 1 + 1
    assert grown("sae_seconds_sum") == (4 + 5 + 2 + 1 + 1) * 0.5
    assert grown("events_published_total") == (4 + 5 + 2 + 1 + 1) + 5
    route = {"route": "/v1/chat/completions", "method": "POST"}
    assert grown("requests_total", status="200", **route) == 4
    assert grown("requests_total", status="500", **route) == 1
    assert grown("request_seconds_count", **route) == 5
    assert after("ready") == 1
    assert after("degraded") == 0
    assert after("build_info", version=_version(), model="scripted/model", sae="scripted/sae") == 1


def test_the_time_before_the_first_token_and_between_tokens_is_measured(counted: Server) -> None:
    before = Page(counted.chat_url)
    counted.chat("[prefill=0.3] [delay=0.2] a b")
    after = Page(counted.chat_url)
    assert after("first_token_seconds_sum") - before("first_token_seconds_sum") >= 0.5
    assert after("token_seconds_sum") - before("token_seconds_sum") >= 0.35  # two gaps, less the hub's delay
    slow = [
        after(name, le=bound) - before(name, le=bound)
        for name, bound in (("first_token_seconds_bucket", "0.25"), ("token_seconds_bucket", "0.05"))
    ]
    assert slow == [0, 0]


def test_what_is_going_on_is_seen_while_it_goes_on(counted: Server) -> None:
    with EventStream(counted.features_port) as one, EventStream(counted.features_port) as two:
        next(one.blocks())
        next(two.blocks())
        assert Page(counted.features_url)("subscribers") == 2
        before = Page(counted.chat_url)
        with _asking(counted), _asking(counted):
            wait_until(lambda: Page(counted.chat_url)("queue_running") == 1)
            assert Page(counted.chat_url)("queue_waiting") == 1
            assert counted.chat("no place").json()["error"]["code"] == "queue_full"
            page = Page(counted.chat_url)
            assert page("refused_total", code="queue_full") - before("refused_total", code="queue_full") == 1
            assert page("requests_open") == 2 + 2 + 1  # streams, answers, this page
    wait_until(lambda: Page(counted.features_url)("subscribers") == 0)
    wait_until(lambda: Page(counted.features_url)("requests_open") == 1)  # the page itself
    idle = Page(counted.chat_url)
    assert (idle("queue_running"), idle("queue_waiting")) == (0, 0)


def test_a_client_that_leaves_is_a_cancelled_generation(counted: Server) -> None:
    before = Page(counted.chat_url)("generations_total", finish_reason="cancelled")
    with _asking(counted):
        pass
    wait_until(lambda: Page(counted.chat_url)("generations_total", finish_reason="cancelled") == before + 1)


def test_invented_paths_and_methods_make_no_series(counted: Server) -> None:
    http.get(f"{counted.chat_url}/nothing-here")
    raw_request(counted.port, b"INVENTED0 / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    http.get(f"{counted.features_url}/v1/features/1")
    before = set(Page(counted.chat_url).samples)
    for number in range(30):
        http.get(f"{counted.chat_url}/nothing-here/{number}")
        http.get(f"{counted.features_url}/v1/features/{number}")
        request = f"INVENTED{number} /{number} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        raw_request(counted.port, request.encode())
    page = Page(counted.chat_url)
    new = {key for key in set(page.samples) - before if "404" not in dict(key[1]).values()}
    assert not new
    route = "/v1/features/<int:index>"
    assert page("requests_total", route=route, method="GET", status="200") >= 31
    assert page("requests_total", route="none", method="GET", status="404") >= 31


def test_the_process_and_the_loop_are_measured(counted: Server) -> None:
    wait_until(lambda: Page(counted.chat_url)("loop_lag_seconds_count") > 2)
    page = Page(counted.chat_url)
    assert 0 <= page("loop_lag_max_seconds") < 60
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"):
        assert page.samples[name, frozenset()] > 0


def test_a_head_has_the_headers_alone_and_another_host_gets_nothing(counted: Server) -> None:
    for port in (counted.port, counted.features_port):
        head = raw_request(port, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert status_of(head) == 200
        assert head.endswith(b"\r\n\r\n")
        refused = raw_request(
            port, b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        assert status_of(refused) == 403
        assert b"neuroscope_" not in refused


def test_it_answers_while_the_model_loads_and_asks_for_the_key(tmp_path: Path) -> None:
    env = {"SCRIPTED_LOAD_SECONDS": "120", "NEUROSCOPE_API_KEY": "secret"}
    with serving(tmp_path, env=env, ready=False) as server:
        wait_until(server.answers, what="a port")
        for url in (server.chat_url, server.features_url):
            assert http.get(f"{url}/metrics").status_code == 401
            response = http.get(f"{url}/metrics", headers={"Authorization": "Bearer secret"})
            loading = samples(response.text)
            assert loading["neuroscope_ready", frozenset()] == 0
            empty = {"version": _version(), "model": "", "sae": ""}
            assert loading["neuroscope_build_info", frozenset(empty.items())] == 1


@contextmanager
def _asking(server: Server) -> Iterator[None]:
    """A long answer is on its way; in the end its client leaves."""
    body = {"messages": [{"role": "user", "content": "[delay=0.1] " + "w " * 200}], "stream": True}
    with http.stream("POST", f"{server.chat_url}/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()  # which closes the response when it is dropped
        next(lines)
        yield


def _version() -> str:
    return version("neuroscope-sae")
