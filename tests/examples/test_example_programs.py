"""The programs of examples/ as people run them: as processes, beside a real server, in a real browser."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import browser, complaints, context, page  # noqa: F401 - fixtures
from playwright.sync_api import Page, expect
from scripted_results import write_results
from serving import ROOT, Server, free_ports, serving, wait_until

EXAMPLES = ROOT / "examples"
KEY = "key-of-the-examples"


@pytest.fixture(scope="module")
def page_port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, page_port: int) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("examples")
    write_results(folder / "results/tiny")
    allowed = {"allowed_origins": [f"http://127.0.0.1:{page_port}"]}
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}, serve=allowed) as running:
        running.wait_ready()
        yield running
    assert "Traceback" not in running.output


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("examples-keyed"), env={"NEUROSCOPE_API_KEY": KEY}) as running:
        running.wait_ready()
        yield running


def command(name: str, *words: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *words]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "MPLBACKEND": "agg", "PYTHONUNBUFFERED": "1", **more}


def addresses(server: Server) -> tuple[str, ...]:
    return "--chat", f"{server.chat_url}/v1", "--features", f"{server.features_url}/v1/features"


def run(name: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(name, *words),
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(**more),
        check=False,
    )


def test_an_answer_is_joined_with_its_features(server: Server) -> None:
    done = run("answer_with_features.py", *addresses(server), "--top-k", "2", "one two three")
    assert done.returncode == 0, done.stderr
    assert [line.split(maxsplit=1) for line in done.stdout.splitlines()[:1]] == [
        ["'one'", "label of 3 9.0, an imported name 5.0"]
    ]
    assert "'one'" in done.stdout
    assert "' three'" in done.stdout


def test_characters_cut_over_tokens_lose_no_features(server: Server) -> None:
    done = run("answer_with_features.py", *addresses(server), "[chars]é猫")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 5, "one line a token, those without text too"


def test_the_key_is_taken_from_the_environment(keyed: Server) -> None:
    done = run("answer_with_features.py", *addresses(keyed), "one", NEUROSCOPE_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert "'one'" in done.stdout
    refused = run("answer_with_features.py", *addresses(keyed), "one", NEUROSCOPE_API_KEY="wrong")
    assert refused.returncode == 1
    assert "401" in refused.stderr
    (port,) = free_ports(1)
    nobody = ("--features", f"http://127.0.0.1:{port}/v1/features")
    alone = run("answer_with_features.py", *nobody, "one")
    assert alone.returncode == 1
    assert alone.stderr.startswith(f"No features from http://127.0.0.1:{port}/v1/features/stream (")
    assert "Traceback" not in refused.stderr + alone.stderr


@contextlib.contextmanager
def watching(server: Server, *words: str) -> Iterator[subprocess.Popen[str]]:
    words = (*words, "--features", f"{server.features_url}/v1/features")
    with subprocess.Popen(
        command("alert.py", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("watching feature")
            yield process
        finally:
            process.kill()


def test_an_alert_is_told_once_for_an_answer_and_only_above_the_limit(server: Server) -> None:
    with watching(server, "6", "4.9") as process:
        assert process.stdout is not None
        calm = server.chat("one")  # feature 6 fires on the third token; the end of this answer is its second
        loud = server.chat(" ".join("abcdefghijklmnop"))
        alert = json.loads(process.stdout.readline())
        assert alert["completion_id"] == loud.json()["id"] != calm.json()["id"]
        assert (alert["token_index"], alert["token"], alert["index"], alert["activation"]) == (
            2,
            " c",
            6,
            5.0,
        )
        again = server.chat("one two three")
        assert json.loads(process.stdout.readline())["completion_id"] == again.json()["id"]


def test_an_activation_of_exactly_the_limit_is_no_alert_and_once_ends_with_one(server: Server) -> None:
    with watching(server, "5", "5.0", "--once") as exact, watching(server, "5", "4.9", "--once") as below:
        server.chat("one two three")
        assert below.wait(60) == 1
        assert exact.poll() is None


def test_a_limit_that_is_none_is_refused_in_the_servers_words(server: Server) -> None:
    done = run("alert.py", "5", "-1", "--features", f"{server.features_url}/v1/features")
    assert done.returncode == 1
    assert "min_activation" in done.stderr


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_the_page_shows_what_comes(page: Page, server: Server, page_port: int) -> None:  # noqa: F811
    serve = functools.partial(Quiet, directory=str(EXAMPLES))
    with http.server.ThreadingHTTPServer(("127.0.0.1", page_port), serve) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{page_port}/watch.html?{server.features_url}")
        expect(page.locator("#state")).to_have_text("Ask the model something, from anywhere.")
        wait_until(lambda: server.get("/readyz").json()["subscribers"], what="the page's subscription")
        server.chat("one <b>two</b>")
        expect(page.locator("#tokens li").first).to_contain_text(
            "label of 3 9.0, an imported name 5.0, label of 20 2.5"
        )
        expect(page.locator("#tokens li").nth(1)).to_contain_text("<b>two</b>")
        expect(page.locator("#state")).to_have_text("2 tokens, ended by stop.")
        files.shutdown()


def test_the_notebook_asks_and_plots(tmp_path: Path) -> None:
    write_results(tmp_path)
    done = run("explore.py", str(tmp_path / "results.duckdb"), str(tmp_path / "new/plots"))
    assert done.returncode == 0, done.stderr
    assert "32 features" in done.stdout
    for name in ("firing-rates.png", "scores.png"):
        assert (tmp_path / "new/plots" / name).read_bytes().startswith(b"\x89PNG"), name


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix != ".md"} == {
        name
        for name in ("answer_with_features.py", "alert.py", "watch.html", "explore.py")
        if text.count(f"{name}") > 1
    }
