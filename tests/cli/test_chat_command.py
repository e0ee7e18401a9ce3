"""`neuroscope chat` as a process beside the real server: what it prints, and what happens when things go wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from at_terminal import Typist, command, environment, lines_of, run, start
from serving import Server, free_ports, serving

from neuroscope.cli.terminal import width

KEY = "a-secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), serve={"heartbeat_s": 0.2}) as running:
        yield running


# --- the answer and its features


def test_each_token_stands_beside_its_features_and_the_answer_follows_whole(server: Server) -> None:
    lines = lines_of(server, "chat", "one two", "--filter", "none")
    heading, one, two, end, _, answer, _, summary = lines
    assert heading.split() == ["token", *["feature", "act", "z"] * 2]
    assert re.fullmatch(r"one +3 label of 3 +9\.0 +\+7\.0 +4 label of 4 +5\.0 +\+3\.0", one)
    assert re.fullmatch(r"␣two +3 label of 3 +9\.0 +\+7\.0 +5 label of 5 +5\.0 +\+3\.0", two)
    assert end.startswith("·"), "the end of the turn has no text"
    assert answer == "one two"
    assert re.fullmatch(r"stop: 2 tokens, L0 3\.0, FVU 0\.125; chatcmpl-[0-9a-f]+", summary)


def test_the_flags_change_what_this_reader_sees(server: Server) -> None:
    (line,) = lines_of(server, "chat", "a", "--max-tokens", "1", "--features", "20,21")[1:2]
    assert line.split() == ["a", "20", "label", "of", "20", "2.5", "+0.5"]
    (line,) = lines_of(server, "chat", "a", "--max-tokens", "1", "--min-activation", "100")[1:2]
    assert line == "a" + " " * 15 + "(none shown of 3 active)"
    lines = lines_of(
        server, "chat", "a", "--max-tokens", "1", "--filter", "none", "--features-per-token", "3"
    )
    assert [line.split()[-2] for line in lines[1:3]] == ["5.0", "2.5"], (
        "the third stands on a line of its own"
    )


def test_the_prompts_tokens_come_first_when_asked_for(server: Server) -> None:
    lines = lines_of(server, "chat", "ask me", "--prompt-features", "--max-tokens", "1")
    assert [line.split()[0] for line in lines[1:6]] == ["--", "ask", "␣me", "--", "ask"]
    assert (lines[1], lines[4]) == ("-- prompt", "-- answer")


def test_what_is_asked_comes_from_stdin_too(server: Server) -> None:
    for words in ((), ("-",)):
        done = run(server, "chat", "--plain", *words, stdin="\ufeffcafé au lait".encode())
        assert (done.stdout, done.stderr) == ("café au lait\n", "")
    done = run(server, "chat", "the argument wins", "--plain", stdin=b"not this")
    assert done.stdout == "the argument wins\n"


@pytest.mark.parametrize(
    ("stdin", "code", "words"),
    [(b" \n", 2, "Nothing is asked"), (b"caf\xe9", 1, "The question on stdin is not UTF-8 (byte 3)")],
)
def test_stdin_without_a_question_is_told(server: Server, stdin: bytes, code: int, words: str) -> None:
    done = run(server, "chat", stdin=stdin)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("",), 2, "Nothing is asked"),  # as of a variable that is not set
        (("a", "--temperature", "nan"), 2, "'nan' is not a finite number"),
        (("a", "--temperature", "2.5"), 2, "2.5 is not in the range 0<=x<=2"),
        (("a", "--min-activation", "-inf"), 2, "-inf"),
        (("a", "--features", "4,32"), 1, "'features' has 32; the SAE has 32 features, from 0 to 31"),
    ],
)
def test_what_cannot_be_asked_is_told(server: Server, flags: tuple[str, ...], code: int, words: str) -> None:
    done = run(server, "chat", *flags)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_a_system_message_and_the_sampling_options_reach_the_model(server: Server) -> None:
    done = run(server, "chat", "a b c", "--plain", "--max-tokens", "2", "--system", "be brief", "--seed", "1")
    assert done.stdout == "a b\n"
    assert "cut at its limit of tokens; --max-tokens raises it" in done.stderr
    done = run(server, "chat", "a", "--seed", str(2**63))
    assert (done.returncode, done.stderr) == (
        1,
        f"neuroscope: 'seed' is {2**63}; it must be a whole number from {-(2**63)} to {2**63 - 1}.\n",
    )


def test_json_is_one_object_a_token(server: Server) -> None:
    done = run(server, "chat", "--json", "é \x1b[2J", "--top-k", "1")
    assert "\x1b" not in done.stdout
    first, second, third, end = map(json.loads, done.stdout.splitlines())
    assert [row["data"]["token"] for row in (first, second, third)] == ["é", " \x1b[2J", ""]
    assert [len(row["data"]["top_features"]) for row in (first, second)] == [1, 1]
    assert (end["event"], end["data"]["finish_reason"]) == ("generation_complete", "stop")
    assert run(server, "chat", "--json", "--plain", "a").returncode == 2


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_lines_fit_whatever_is_written(server: Server, columns: int) -> None:
    words = "猫猫猫猫猫猫猫猫猫猫猫猫 😀👩‍🚀 e\u0301\u0301 שלום \u202eevil \x1b[2J\x07 " + "x" * 300
    lines = lines_of(server, "chat", words, "--filter", "none", columns=columns)[: len(words.split()) + 1]
    shown = [line.replace("\u2068", "").replace("\u2069", "") for line in lines]
    assert max(map(width, shown)) <= columns
    assert all(c.isprintable() or c in "\u2068\u2069" for line in lines for c in line)
    assert any("\u2068␣שלום\u2069" in line for line in lines), "what runs from right to left is kept apart"


# --- at a terminal


def test_a_terminal_gets_colour_unless_it_is_forbidden(server: Server) -> None:
    with Typist(server, "chat", "a", "--filter", "none") as person:
        assert person.leaves() == 0
        assert "\x1b[1ma" in person.seen
        assert "\x1b[33m" in person.seen, "a surprising feature stands out"
    for words, more in ((("--no-color",), {}), ((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"})):
        with Typist(server, "chat", "a", *words, **more) as person:
            assert person.leaves() == 0
            assert "\x1b" not in person.seen
            assert "label of" in person.seen


def test_plain_text_steers_no_terminal(server: Server) -> None:
    with Typist(server, "chat", "--plain", "a\x1b[2J\x07\u202e b") as person:
        assert person.leaves() == 0
        assert "a␛[2J␇<U+202E> b" in person.seen
        assert "\x1b[2J" not in person.seen


def test_a_conversation_remembers_until_it_is_told_to_forget(server: Server, tmp_path: Path) -> None:
    written = tmp_path / "talk.json"
    with Typist(server, "chat", "--plain", "--system", "be brief") as person:
        person.sees("you> ")
        person.types("first words\n")
        person.sees("first words\r\nfirst words\r\n")
        person.sees("you> ")
        person.types(f"/save {written}\n")
        person.sees("3 messages are in ")
        person.sees("you> ")
        assert json.loads(written.read_text()) == {
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "first words"},
                {"role": "assistant", "content": "first words"},
            ]
        }
        person.types("/clear\n")
        person.sees("Forgotten.")
        person.types(f"/save {written}\n")
        person.sees("1 messages are in ")
        person.types("/save /proc/no/such\n")
        person.sees("cannot be written")
        person.types("/save\n")
        person.sees("/save FILE")
        person.types("/nonsense\n")
        person.sees("There is no /nonsense; /help lists what there is.")
        person.types("/help\n")
        person.sees("Ctrl-C ends an answer.")
        person.types("/quit\n")
        assert person.leaves() == 0


def test_ctrl_c_ends_the_answer_and_not_the_conversation(server: Server) -> None:
    with Typist(server, "chat", "--plain") as person:
        person.sees("you> ")
        person.types("[delay=0.1]" + " ".join(f"w{n}" for n in range(100)) + "\n")
        person.sees("\nw0 w1")
        person.types("\x03")
        person.sees("The answer was ended.")
        person.sees("you> ")
        server.wait_idle()
        person.types("\x03")
        person.sees("Ctrl-D or /quit leaves.")
        person.types("still here\n")
        person.sees("still here\r\nstill here")
        person.sees("you> ")
        person.types("\x04")
        assert person.leaves() == 0


def test_a_failed_answer_is_told_and_can_be_asked_again(server: Server) -> None:
    with Typist(server, "chat") as person:
        person.sees("you> ")
        person.types("[fail=1]a b\n")
        person.sees("neuroscope: The model failed on this request")
        person.sees("you> ")
        person.types("a b\n")
        person.sees("stop: 2 tokens")
        person.sees("you> ")
        person.types("\x04")
        assert person.leaves() == 0


# --- what goes wrong


def test_ctrl_c_ends_a_single_answer_at_the_server(server: Server) -> None:
    process = start(server, "chat", "--plain", "[delay=0.05]" + "word " * 200)
    assert process.stdout is not None
    assert process.stdout.read(4) == "word"
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.communicate()
    server.wait_idle()


@pytest.mark.parametrize("words", [("--plain",), ("--json",), ()])
def test_a_reader_that_leaves_ends_it_quietly(server: Server, words: tuple[str, ...]) -> None:
    asked = command("chat", "[delay=0.02]" + "word " * 100, *words)
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -c 5', "sh", *asked],
        capture_output=True,
        env=environment(server),
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    assert (len(done.stdout), done.stderr) == (5, b"")
    server.wait_idle()


def test_a_server_that_is_killed_leaves_what_was_said_and_an_error(tmp_path: Path) -> None:
    with serving(tmp_path) as short:
        process = start(short, "chat", "[delay=0.1]" + "word " * 200)
        assert process.stdout is not None
        first = process.stdout.readline() + process.stdout.readline()
        killed = psutil.Process(short.process.pid).children()  # the worker would end well without its master
        for worker in killed:
            worker.kill()
        short.stop(signal.SIGKILL)
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "word" in first
    assert "word" in out.splitlines()[-1], "the answer so far"
    assert re.search(r"neuroscope: (The server at|The connection to) .* (broke|closed)", errors)


def test_a_server_that_ends_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as short:
        process = start(short, "chat", "[delay=0.1]" + "word " * 200)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        short.stop(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "The server is shutting down." in errors


def test_no_server_names_the_command_that_starts_one(server: Server) -> None:
    (port,) = free_ports(1)
    done = run(server, "chat", "a", "--plain", "--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"No server at 127.0.0.1:{port}" in done.stderr
    assert "`neuroscope serve`" in done.stderr
    done = run(server, "chat", "a", "--features-port", str(port))
    assert f"No server at 127.0.0.1:{port}" in done.stderr


def test_ports_that_are_swapped_are_told_by_the_server(server: Server) -> None:
    ports = ("--port", str(server.features_port), "--features-port", str(server.port))
    done = run(server, "chat", "a", *ports)
    assert "There is no '/v1/features/stream' on this port. It has" in done.stderr


def test_a_wrong_key_names_its_variable(tmp_path: Path) -> None:
    with serving(tmp_path, env={"NEUROSCOPE_API_KEY": KEY}) as locked:
        assert run(locked, "chat", "hi", "--plain", NEUROSCOPE_API_KEY=KEY).stdout == "hi\n"
        for more, words in (
            ({}, "asks for a key"),
            ({"NEUROSCOPE_API_KEY": "x"}, "does not take the key in"),
        ):
            done = run(locked, "chat", "hi", **more)
            assert done.returncode == 1
            assert words in done.stderr
            assert "NEUROSCOPE_API_KEY" in done.stderr
