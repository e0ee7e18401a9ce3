"""The programs of examples/ as people run them: as processes, beside a real server, in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_results import write_results
from serving import ROOT, Server, free_ports, serving

EXAMPLES = ROOT / "examples"
KEY = "key-of-the-examples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("examples")
    write_results(folder / "results/tiny")
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}) as running:
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


def test_the_notebook_asks_and_plots(tmp_path: Path) -> None:
    write_results(tmp_path)
    done = run("explore.py", str(tmp_path / "results.duckdb"), str(tmp_path / "new/plots"))
    assert done.returncode == 0, done.stderr
    assert "32 features" in done.stdout
    for name in ("firing-rates.png", "scores.png"):
        assert (tmp_path / "new/plots" / name).read_bytes().startswith(b"\x89PNG"), name


def test_every_example_is_run_by_a_test() -> None:
    here = Path(__file__)
    tests = (here, here.parents[1] / "browser/test_example_page.py")
    text = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [path.name for path in EXAMPLES.iterdir() if path.name not in text] == []
