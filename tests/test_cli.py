"""The command line: flags become settings, failures become words and exit codes, stdout stays data."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroscope import settings
from neuroscope.cli import main, pipeline
from neuroscope.cli.flags import KEYS
from neuroscope.errors import shown
from neuroscope.settings.schema import dotted_keys, read_schema
from neuroscope.stats import FeatureStats

ROOT = Path(__file__).parents[1]
SPEC_GENERATE = shlex.split(
    "labels generate --model google/gemma-2-2b-it --sae google/gemma-scope-2b-pt-res "
    "--sae-path layer_20/width_16k/average_l0_71/params.npz --samples 50000 --examples-per-feature 20 "
    "--labeler claude-haiku-4-5-20251001 --concurrency 50 --score"
)

Caught = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of the repository in a folder of its own, which is the working directory."""
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "config", folder / "config")
    shutil.copytree(ROOT / "workflow/schemas", folder / "workflow/schemas")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "smollm2-135m")
    monkeypatch.delenv("NEUROSCOPE_CONFIG", raising=False)
    return folder


@pytest.fixture
def targets(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Caught:
    """Catches what would be run: (target, settings)."""
    caught: Caught = []

    def run_target(target: str, overrides: dict[str, Any], *, cores: int | None) -> None:
        caught.append((target, overrides))

    for name in ("calibrate", "corpus", "labels", "labels_score", "serve", "verify"):
        monkeypatch.setattr(f"neuroscope.cli.{name}.run_target", run_target)
    return caught


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# --- flags


def test_every_flag_is_a_setting() -> None:
    known = set(dotted_keys(read_schema(ROOT / "workflow/schemas/config.schema.yaml")))
    assert set(KEYS.values()) <= known


def test_the_specifications_flags_become_settings(targets: Caught) -> None:
    assert main(SPEC_GENERATE) == 0
    ((target, given),) = targets
    assert target == "labels"
    assert given == {
        "model": "google/gemma-2-2b-it",
        "sae.source": "google/gemma-scope-2b-pt-res",
        "sae.path": "layer_20/width_16k/average_l0_71/params.npz",
        "examples.samples": 50000,
        "labels.examples_per_feature": 20,
        "labels.labeler": "claude-haiku-4-5-20251001",
        "labels.concurrency": 50,
        "labels.score": True,
    }
    settled = settings.load("gemma-2-2b-it", overrides=given)
    assert settled.pairing.model == "hf://google/gemma-2-2b-it"
    assert settled.pairing.sae.uri == (
        "hf://google/gemma-scope-2b-pt-res/layer_20/width_16k/average_l0_71/params.npz"
    )


def test_how_claude_is_asked_and_what_it_may_cost_are_settings(targets: Caught) -> None:
    assert main(["labels", "generate", "--batch", "--max-cost", "2.5"]) == 0
    assert targets[0][1] == {"labels.batch": True, "labels.max_cost_usd": 2.5}
    assert main(["labels", "generate", "--max-cost", "-1"]) == 2


def test_a_dry_run_of_scores_asks_nobody(targets: Caught, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "score", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"scorer": "none", "by_rule": 0, "in_words": 0, "calls": 0, "usd": 0.0}
    assert not targets


def test_who_judges_labels_and_how_are_settings(targets: Caught, capsys: pytest.CaptureFixture[str]) -> None:
    words = "labels score --scorer claude-haiku-4-5 --method detection --method fuzzing --max-cost 3"
    assert main(words.split()) == 1
    assert "scores.parquet cannot be read" in capsys.readouterr().err
    assert targets[0] == (
        "scores",
        {
            "labels.scorer": "claude-haiku-4-5",
            "labels.score_methods": ["detection", "fuzzing"],
            "labels.max_cost_usd": 3.0,
            "labels.score": True,
        },
    )
    assert main(["labels", "score", "--scorer", "gpt"]) == 1
    assert "labels.scorer is 'gpt'" in capsys.readouterr().err


def test_more_examples_for_the_labeler_are_collected_too(targets: Caught) -> None:
    assert main(["labels", "generate", "--examples-per-feature", "30"]) == 0
    assert targets[0][1] == {"labels.examples_per_feature": 30, "examples.per_feature": 30}


def test_calibration_takes_its_own_number_of_samples(targets: Caught) -> None:
    assert main(["calibrate", "run", "--pairing", "smollm2-135m", "--samples", "1000"]) == 0
    assert targets == [("calibration", {"pairing": "smollm2-135m", "calibration.samples": 1000})]


def test_a_relative_path_is_relative_to_the_callers_folder(
    targets: Caught, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = checkout / "my texts"
    texts.mkdir()
    monkeypatch.chdir(texts)
    assert main(["calibrate", "run", "--corpus-path", "."]) == 0
    assert targets[0][1] == {"corpus.path": str(texts)}


def test_verify_takes_tokens_and_an_input_norm(targets: Caught) -> None:
    assert (
        main(["verify", "--pairing", "smollm2-135m", "--tokens", "500", "--input-norm", "rms"]) == 1
    )  # no report
    assert targets == [("verify", {"pairing": "smollm2-135m", "verify.tokens": 500, "sae.input_norm": "rms"})]
    assert settings.load(overrides=targets[0][1]).pairing.sae.input_norm == "rms"
    assert main(["verify", "--input-norm", "rmsnorm"]) == 1


def test_a_data_set_of_the_hub_becomes_a_source(targets: Caught) -> None:
    words = shlex.split("corpus build --samples 5000 --dataset wikitext --config wikitext-103-raw-v1")
    assert main(words) == 0
    (source,) = targets[0][1]["corpus.sources"]
    assert source["source"] == "hf://datasets/Salesforce/wikitext/wikitext-103-raw-v1/"
    assert settings.load(overrides=targets[0][1]).corpus.sources[0].stratum == "encyclopedia"


def test_a_configuration_without_a_data_set_is_wrong_usage(
    targets: Caught, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", "build", "--config", "x"]) == 2
    assert "give both" in capsys.readouterr().err
    assert targets == []


# --- exit codes and errors


def test_wrong_usage_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "No such command 'nonsense'" in captured.err


def test_an_expected_failure_is_1_in_one_line(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--pairing", "smollm"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("neuroscope: There is no pairing 'smollm'. Did you mean smollm2-135m?")
    assert "Traceback" not in captured.err


def test_debug_shows_the_traceback(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debug", "serve", "--pairing", "smollm"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_is_told_in_one_line(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("neuroscope.cli.corpus.run_target", fail)
    assert main(["corpus", "build"]) == 1
    assert (
        capsys.readouterr().err == "neuroscope: unexpected ZeroDivisionError: by zero (--debug shows where)\n"
    )


def test_an_interruption_is_130(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("neuroscope.cli.corpus.run_target", interrupt)
    assert main(["corpus", "build"]) == 130
    assert capsys.readouterr().err.endswith("Interrupted.\n")


def test_a_reader_that_leaves_early_is_no_failure(checkout: Path) -> None:
    script = (
        "import sys; from neuroscope.cli import main\n"
        "code = main(['labels', 'show', '--labels', 'many.json'])\n"
        "sys.exit(code)"
    )
    (checkout / "many.json").write_text(json.dumps({str(i): f"label {i}" for i in range(20000)}))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 0
        assert process.stderr.read() == ""


# --- the pipeline is driven


def test_flags_reach_snakemake_with_their_types_and_stdout_stays_empty(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (checkout / "Snakefile").write_text(
        'configfile: "config/config.yaml"\n'
        "from neuroscope.jobs import quote_interpreter\nquote_interpreter()\n"
        "rule corpus:\n    run:\n"
        "        import json\n"
        '        print("noise of a job")\n'
        '        json.dump(dict(config), open("seen.json", "w"))\n'
    )
    words = ["corpus", "build", "--samples", "7", "--dataset", "wikitext", "--cores", "1"]
    assert main(words) == 0
    seen = json.loads((checkout / "seen.json").read_text())
    assert seen["examples"]["samples"] == 7
    assert seen["examples"]["per_feature"] == 20, "what no flag names stays as config.yaml has it"
    assert seen["corpus"]["sources"][0]["format"] == "wikitext"
    assert seen["pairing"] == "smollm2-135m"
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "noise of a job" in captured.err


def test_a_failing_stage_is_1(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (checkout / "Snakefile").write_text(
        'rule corpus:\n    run:\n        raise ValueError("the disk is full")\n'
    )
    assert main(["corpus", "build", "--cores", "1"]) == 1
    assert "Traceback (most recent call last)" not in capfd.readouterr().out


# --- serve


def test_a_port_in_use_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        assert main(["serve", "--port", str(free_port()), "--features-port", str(port)]) == 1
    assert capsys.readouterr().err == (
        f"neuroscope: Port {port} on 127.0.0.1 is in use. Choose another with --features-port N.\n"
    )


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("nowhere.invalid", ""),
        ("256.1.1.1", ""),
        ("192.0.2.1", "Cannot assign requested address"),  # of a network that is kept for documents
        ("2001:db8::1", ""),
        ("a" * 100, "a part of it is too long"),
    ],
)
def test_an_address_of_another_machine_is_the_hosts_fault_and_not_the_ports(
    checkout: Path, capsys: pytest.CaptureFixture[str], host: str, reason: str
) -> None:
    assert main(["serve", "--host", host, "--port", str(free_port())]) == 1
    said = capsys.readouterr().err
    assert f"neuroscope: {shown(host)} is not an address of this machine: {reason}" in said
    assert said.endswith(". Give one with --host, as 127.0.0.1.\n")
    assert "--port" not in said


@pytest.mark.parametrize("host", ["::1", "localhost", "127.0.0.1"])
def test_every_name_of_loopback_can_be_checked(checkout: Path, host: str) -> None:
    ports = ["--port", str(free_port()), "--features-port", str(free_port())]
    assert main(["serve", "--host", host, *ports, "--check"]) == (
        1 if host == "::1" and not has_ipv6() else 0
    )


def has_ipv6() -> bool:
    """Whether this machine has the address ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "is reserved for the system's own services. Choose one from 1024 up with --port N."),
        (errno.EADDRINUSE, "is in use. Choose another with --port N."),
        (errno.ENOBUFS, "cannot be bound (No buffer space available). Choose another with --port N."),
    ],
)
def test_a_port_that_cannot_be_had_has_its_own_remedy(
    checkout: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    words: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("neuroscope.server.master.try_bind", refuse)
    assert main(["serve", "--port", "80"]) == 1
    assert capsys.readouterr().err == f"neuroscope: Port 80 on 127.0.0.1 {words}\n"


def test_the_two_ports_differ(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "8080", "--features-port", "8080"]) == 1
    assert "both 8080" in capsys.readouterr().err


def test_serve_becomes_gunicorn_with_the_flags_in_its_configuration(
    targets: Caught, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execve", lambda path, command, environ: executed.append((command, environ)))
    port, features_port = free_port(), free_port()
    words = [
        "serve",
        "--port",
        str(port),
        "--features-port",
        str(features_port),
        "--top-k",
        "3",
        "--calibrate",
    ]
    assert main(words) == 0
    assert [target for target, _ in targets] == ["calibration"]
    ((command, environ),) = executed
    assert command[1:] == ["-m", "gunicorn", "-c", str(checkout / "gunicorn.conf.py"), "neuroscope.wsgi"]
    assert environ["NEUROSCOPE_PAIRING"] == "smollm2-135m"
    settled = settings.load(config=Path(environ["NEUROSCOPE_CONFIG"]))
    assert (settled.serve.port, settled.serve.features_port, settled.ranking.top_k) == (
        port,
        features_port,
        3,
    )
    assert settled.serve.ring == 4096


def test_serve_takes_flags_where_the_results_cannot_be_written(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[dict[str, str]] = []
    monkeypatch.setattr("os.execve", lambda path, command, environ: executed.append(environ))
    monkeypatch.setattr("neuroscope.cli.serve.check_ports", lambda *given: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shutil.rmtree(checkout / "results", ignore_errors=True)
    (checkout / "results").write_text("not a folder")
    assert main(["serve", "--top-k", "3"]) == 0
    written = Path(executed[0]["NEUROSCOPE_CONFIG"])
    assert written.parent == tmp_path
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(written))
    assert settings.load().ranking.top_k == 3, "the command has changed to the repository's folder"


def test_serve_without_flags_changes_no_configuration(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[dict[str, str]] = []
    monkeypatch.setattr("os.execve", lambda path, command, environ: executed.append(environ))
    monkeypatch.setattr("neuroscope.cli.serve.check_ports", lambda *given: None)
    assert main(["serve"]) == 0
    assert "NEUROSCOPE_CONFIG" not in executed[0]


# --- lists and shows


@pytest.mark.parametrize("kind", ["models", "sae"])
def test_lists_name_every_pairing(kind: str, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([kind, "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["pairing"] for row in rows] == settings.pairings()
    assert main([kind, "list"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["pairing", "complete", "size", "revision"]
    assert len(lines) == len(rows)


@pytest.mark.parametrize("kind", ["models", "sae"])
def test_pull_prints_the_local_path(
    kind: str, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights.npz"
    weights.write_bytes(b"x")
    assert main([kind, "pull", str(weights)]) == 0
    assert capsys.readouterr().out == f"{weights}\n"


def test_labels_of_a_file_are_shown(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "labels.json").write_text('{"7": "greeting", "12": "France"}')
    assert main(["labels", "show", "--labels", "labels.json", "--features", "12,3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["feature"], row["label"]) for row in rows] == [(12, "France"), (3, "feature_3")]
    assert main(["labels", "show", "--labels", "labels.json", "--search", "GREET"]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["feature", "label", "source", "confidence", "balanced_accuracy"]
    assert line.split() == ["7", "greeting", "labels", "-", "-"]


def test_features_are_numbers(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "show", "--features", "4,five"]) == 2
    assert "'4,five' is not a list of numbers" in capsys.readouterr().err


def test_the_features_that_fire_most_are_shown_first(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Feature 1 fires on both tokens, feature 2 on one, feature 0 on none.
    stats = FeatureStats(3)
    stats.add(np.array([1, 1, 2], np.int32), np.array([1.0, 3.0, 5.0], np.float32), np.array([1, 2]))
    stats.finish().to_json(checkout / "stats.json", sae_id="an-sae")
    assert main(["calibrate", "show", "--stats", "stats.json", "--top", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["feature"], row["firing_rate"], row["mean_firing"]) for row in rows] == [
        (1, 1.0, 2.0),
        (2, 0.5, 5.0),
        (0, 0.0, None),
    ]


def test_the_corpus_is_shown_with_what_was_left_out(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {
        "name": "wikipedia",
        "stratum": "encyclopedia",
        "licence": "CC",
        "documents": 3,
        "characters": 9,
    }
    path = checkout / "results/smollm2-135m/corpus.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"documents": 3, "sources": [{**source, "skipped": {"duplicate": 2}}]}))
    assert main(["corpus", "show"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["2", "duplicate"]
    assert main(["corpus", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["skipped"] == {"duplicate": 2}


@pytest.mark.parametrize("words", [["corpus", "show"], ["labels", "show"], ["calibrate", "show"]])
def test_what_is_not_there_yet_names_the_command_that_makes_it(
    words: list[str], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(
        "NEUROSCOPE_PAIRING=smollm2-135m (neuroscope corpus build|snakemake --cores 4 labels)", captured.err
    )


def test_a_host_may_be_an_ipv6_address(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every machine that tests has one."""
    tried = []

    def listen(*_: object) -> None:
        pass

    def bind(trial: socket.socket, address: tuple[str, int]) -> None:
        tried.append((address, trial.family))

    monkeypatch.setattr(socket.socket, "listen", listen)
    monkeypatch.setattr(socket.socket, "bind", bind)
    assert main(["serve", "--host", "::1", "--port", "8080", "--features-port", "8081", "--check"]) == 0
    assert tried == [(("::1", port), socket.AF_INET6) for port in (8080, 8081)]


def test_an_empty_list_of_features_is_wrong_usage(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labels", "show", "--features", ","]) == 2
    assert "no feature is named" in capsys.readouterr().err


def test_a_home_that_cannot_be_written_is_said_before_anything_runs(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkout / "file/cache"))
    assert main(["corpus", "build"]) == 1
    assert "file/cache cannot be made: Not a directory. Set XDG_CACHE_HOME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shell", "code", "words"),
    [
        ("PYTHONIOENCODING=latin-1 {show} >out && cat out", 0, "gr\\u4f60"),
        (
            "{show} >/dev/full",
            1,
            "neuroscope: The output could not be written: no space is left where it goes.",
        ),
        ("{show} >&-", 0, ""),
        ("{show} | head -1", 0, "feature"),
    ],
    ids=["encoding", "full", "closed", "reader"],
)
def test_output_that_cannot_go_out_as_it_is(shell: str, code: int, words: str, checkout: Path) -> None:
    (checkout / "labels.json").write_text('{"7": "gr\\u4f60"}')
    show = f"{shlex.quote(sys.executable)} -m neuroscope.cli labels show --labels labels.json"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell.format(show=show)], capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr
    said = (done.stdout + done.stderr).decode()
    assert words in said
    assert "unexpected" not in said


# --- stopping


DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(0.2)
os.kill(os.getppid(), int(sys.argv[1]))
time.sleep(60)
"""
"""A run that interrupts the command which waits for it, and does not leave when it is asked."""


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_does_not_stop_when_it_is_asked_is_ended(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "PATIENCE_SECONDS", 0.2)
    before = signal.getsignal(signal.SIGTERM)
    # A run of the tests in the background of a shell ignores Ctrl-C.
    monkeypatch.setattr(
        signal, "_before", signal.signal(signal.SIGINT, signal.default_int_handler), raising=False
    )
    with subprocess.Popen([sys.executable, "-c", DEAF, str(int(number))]) as run:
        with pytest.raises(KeyboardInterrupt):
            pipeline._wait(run)
        assert run.returncode == -signal.SIGKILL
    assert signal.getsignal(signal.SIGTERM) is before


# --- the shell


def test_help_loads_no_heavy_library() -> None:
    script = (
        "import sys; from neuroscope.cli import main; code = main(['labels', 'generate', '--help'])\n"
        "heavy = {'torch', 'transformers', 'polars', 'duckdb', 'snakemake', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--examples-per-feature" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_NEUROSCOPE_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_completion_completes_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from neuroscope.cli import main; raise SystemExit(main())"],
        env={"_NEUROSCOPE_COMPLETE": "bash_complete", "COMP_WORDS": "neuroscope lab", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,labels\n", done.stderr
