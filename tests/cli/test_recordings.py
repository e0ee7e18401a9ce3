"""`neuroscope record`, `session` and `diff` as a person runs them, against a real server and against files alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from at_terminal import Typist
from made_recordings import document, recording
from scripted_results import write_results
from serving import EventStream, Server, free_ports, serving, write_config

from neuroscope.cli import main
from neuroscope.cli.diff import diff_lines
from neuroscope.cli.terminal import width
from neuroscope.diff import compare, side_of
from neuroscope.ranking import Ranking
from neuroscope.recording import check_recording, read_recording, write_recording
from neuroscope.sessions import Sessions

Run = Callable[..., str]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    write_results(root / "results/tiny")
    with serving(root, env={"SCRIPTED_RESULTS": "1"}) as running:
        yield running
    assert "Traceback" not in running.output


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line; returns stdout, or stderr where `code` is another than 0."""

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        ended = main(words)
        out, err = capsys.readouterr()
        assert ended == code, err
        assert "Traceback" not in err
        return out if code == 0 else err

    return run


@pytest.fixture
def here(root: Path, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty working directory, with the server's configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(root / "config/config.yaml"))
    for name in ("NEUROSCOPE_PAIRING", "NEUROSCOPE_API_KEY", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration whose server is not there."""
    port, features_port = free_ports()
    config = write_config(tmp_path, serve={"port": port, "features_port": features_port})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(config))
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


def recorded(run: Run, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("record", *words, "--json"))
    return found


def test_a_prompt_is_asked_and_its_answer_kept(here: Path, root: Path, run: Run, server: Server) -> None:
    told = recorded(run, "one two three", "--out", "mine.json", "--title", "Three words")
    assert told["file"] == "mine.json"
    assert told["page"] == f"{server.features_url}/session/{told['id']}"
    found = read_recording(here / "mine.json")
    assert found == Sessions(root / "results/tiny").read(told["id"])
    assert (found.title, found.total_tokens, len(found.prompt)) == ("Three words", 3, 3)
    assert found.messages == [{"role": "user", "content": "one two three"}]
    without = recorded(run, "one two", "--no-prompt-features", "--system", "Be brief.", "--max-tokens", "1")
    found = Sessions(root / "results/tiny").read(without["id"])
    assert (found.prompt, found.total_tokens, found.finish_reason) == ([], 1, "length")
    assert found.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one two"},
    ]


def test_the_answer_is_on_stderr_and_the_place_on_stdout(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "one\x1b[31m two"]) == 0
    out, err = capsys.readouterr()
    assert "one␛[31m two" in err, "nothing that a model says steers the terminal"
    assert "\x1b" not in out + err
    assert re.search(r"^id +\d{8}t\d{6}-[0-9a-f]{8}$", out, re.MULTILINE)


def test_an_answer_of_another_client_is_kept_by_its_id(here: Path, run: Run, server: Server) -> None:
    completion_id = server.chat("a b c").json()["id"]
    assert recorded(run, "--completion", completion_id)["completion_id"] == completion_id
    assert "no answer chatcmpl-nobody" in run("record", "--completion", "chatcmpl-nobody", code=1)


def test_record_wants_one_thing_to_keep(alone: Path, run: Run) -> None:
    for words in ([], ["a prompt", "--completion", "chatcmpl-1"]):
        assert "Give a PROMPT to ask, or --completion ID" in run("record", *words, code=2)
    assert "neuroscope serve" in run("record", "a prompt", code=1), "the next command where no server is"


def test_a_file_that_cannot_be_written_is_named(here: Path, run: Run) -> None:
    (here / "file").write_text("")
    assert "file" in run("record", "a b", "--out", "file/mine.json", code=1)


def test_sessions_are_listed_shown_exported_and_deleted(here: Path, root: Path, run: Run) -> None:
    name = recorded(run, "[delay=0] one two", "--title", "A <title>")["id"]
    listed = run("session", "list")
    assert listed.splitlines()[0].split() == ["id", "created_at", "tokens", "size", "title"]
    assert f"{name}" in listed
    assert "A <title>" in listed
    assert name in [row["id"] for row in json.loads(run("session", "list", "--json"))]
    shown = run("session", "show", name)
    assert "answer tokens  2" in shown
    assert "\nanswer:\none two\n" in f"\n{shown}"
    assert "an imported name" in shown
    assert json.loads(run("session", "show", name, "--json"))["id"] == name
    assert run("session", "html", name) == f"{name}.html\n"
    assert (here / f"{name}.html").read_text() == run("session", "html", name, "--out", "-")
    assert "say --yes" in run("session", "delete", name, code=2)
    assert run("session", "delete", name, "--yes") == f"deleted {name}\n"
    assert not Sessions(root / "results/tiny").path(name).exists()
    for words in (["show", name], ["html", name], ["delete", name, "--yes"]):
        assert "There is no session" in run("session", *words, code=1)


def test_a_person_is_asked_before_a_recording_goes(here: Path, root: Path, run: Run, server: Server) -> None:
    name = recorded(run, "[delay=0] one", "--title", "mine")["id"]
    for answer, left in (("\x03", True), ("n\n", True), ("y\n", False)):
        with Typist(server, "session", "delete", name) as person:
            assert "mine" in person.sees("Delete 1 recording(s) for good? [y/N]")
            person.types(answer)
            assert (person.leaves() == 0) != left
        assert Sessions(root / "results/tiny").path(name).exists() == left


def test_a_file_is_shown_and_exported_without_server_and_session(alone: Path, run: Run) -> None:
    write_recording(alone / "mine.json", recording([(" <b>", {4: (5.0, 2.0)}), ("\x1b[2J", {5: 1.0})]))
    shown = run("session", "show", "mine.json")
    assert "␛[2J" in shown
    assert "\x1b" not in shown
    assert run("session", "html", "mine.json", "--out", "page.html") == "page.html\n"
    assert "Content-Security-Policy" in (alone / "page.html").read_text()
    assert run("session", "list") == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.json", "There is no recording at nowhere.json"),
        ("nowhere", "There is no session 'nowhere' in "),
        ("../../etc/passwd", "cannot be read as a recording|There is no recording at|is not JSON"),
        ("cut.json", "cut short"),
        ("html.json", "is not JSON"),
    ],
)
def test_what_is_no_recording_is_named(alone: Path, run: Run, name: str, said: str) -> None:
    (alone / "cut.json").write_text(json.dumps(document())[:-9])
    (alone / "html.json").write_text("<html>")
    for command in (["session", "show"], ["session", "html"]):
        assert re.search(said, run(*command, name, code=1))
    assert re.search(said, run("diff", name, "cut.json", code=1))


def test_an_ended_answer_leaves_no_recording(here: Path, root: Path, server: Server) -> None:
    """Ctrl-C while it is written: the answer ends, nothing is kept."""
    before = Sessions(root / "results/tiny").page()[0]
    words = [sys.executable, "-m", "neuroscope.cli", "record", "[delay=0.2] " + "w " * 40]
    with EventStream(server.features_port) as stream:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            next(stream.events())
            running.send_signal(2)
            out, err = running.communicate(timeout=60)
        assert stream.until("generation_complete")[-1].data["finish_reason"] == "cancelled"
    assert running.returncode == 130, err
    assert out == ""
    assert "Interrupted." in err
    assert Sessions(root / "results/tiny").page()[0] == before


# diff


def test_two_files_are_compared_without_a_server(alone: Path, run: Run) -> None:
    shared: Any = [(" Paris", {4: (5.0, 2.0)}), (" is", {5: (1.0, 0.0)})]
    write_recording(alone / "a.json", recording([*shared, (" big", {6: (3.0, 1.0)})], title="First"))
    other: Any = [(" Paris", {4: (1.0, 0.5)}), *shared[1:], (" small", {7: (3.0, 4.0)})]
    write_recording(alone / "b.json", recording(other, title="Second"))
    found = json.loads(run("diff", "a.json", "b.json", "--json"))
    assert [(row["index"], row["state"]) for row in found["features"]] == [
        (7, "appears"),
        (4, "weaker"),
        (6, "vanishes"),
    ]
    told = run("diff", "a.json", "b.json")
    assert "A  First  (3 tokens)" in told
    assert "\n2 tokens shared.\n" in told
    assert "Features: 1 appears, 1 vanishes, 0 stronger, 1 weaker, 1 alike." in told
    assert "=  Paris is\n-  big\n+  small\n" in told
    assert re.search(r"^ *7 +label of 7 +appears +- +0 +3 +1 +4$", told, re.MULTILINE)
    assert "4 label of 4 5 > 1" in told
    assert "\x1b" not in told
    assert json.loads(run("diff", "a.json", "a.json", "--json"))["features"] == []
    assert "0 appears, 0 vanishes" in run("diff", "a.json", "a.json")


def test_recordings_of_other_features_are_refused(alone: Path, run: Run) -> None:
    write_recording(alone / "a.json", recording())
    other = {**document()["fingerprint"], "sae_sha256": "2" * 64}
    write_recording(alone / "b.json", recording(fingerprint=other))
    assert "SAE file 1111111111111111 and 2222222222222222" in run("diff", "a.json", "b.json", code=1)


def test_texts_questions_sessions_and_files_are_compared_by_the_server(here: Path, run: Run) -> None:
    told = recorded(run, "one two three", "--out", "mine.json")
    by_text = json.loads(run("diff", "one two three", "one two", "--text", "--json"))
    assert [len(by_text[name]["tokens"]) for name in "ab"] == [3, 2]
    asked = json.loads(run("diff", "one two three", "one two", "--json"))
    assert asked["runs"] == by_text["runs"]
    mixed = json.loads(run("diff", told["id"], "one two", "--json"))
    assert [token["token"] for token in mixed["b"]["tokens"]] == ["one", " two"]
    assert mixed["a"]["title"] == "one two three"
    assert json.loads(run("diff", "mine.json", told["id"], "--json"))["features"] == []
    assert "exclude each other" in run("diff", "a", "b", "--text", "--prompt", code=2)
    assert "give --text" in run("diff", "nothing", "one two", code=1)


def test_a_table_fits_its_terminal_and_shows_no_control_character() -> None:
    a = recording([(" 日本語" * 30, {4: (5.0, 2.0)}), ("\x1b]0;x\x07", {5: 1.0})], title="\x1b[31mred")
    b = recording([("\u202eabc", {n: (float(n + 1), 1.0) for n in range(31)})], title="b" * 200)
    found = compare(side_of(a), side_of(b), Ranking("none", 1, 1000))
    for columns in (80, 120):
        lines = list(diff_lines(found, columns, colour=False))
        assert not [line for line in lines if "\x1b" in line or "\x07" in line or "\u202e" in line]
        assert max(map(width, lines)) <= columns
    coloured = "".join(diff_lines(found, 100, colour=True))
    assert "\x1b[32m" in coloured
    assert "\x1b]0" not in coloured


def test_a_turns_scaffold_is_not_counted_as_shared() -> None:
    side = side_of(recording([(" x", {4: 1.0})], prompt=[("<bos>", {4: 1.0}), ("Hi", {4: 1.0})]))
    lines = list(diff_lines(compare(side, side, Ranking("none", 1, 10)), 80, colour=False))
    assert "A  Where is Paris?  (2 tokens)" in lines
    assert "2 tokens shared." in lines


def test_tables_fit_a_terminal(alone: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = {"label": "日本語 " * 40, "firing_rate": 0.1, "mean_firing": 1.0, "variance_firing": 1.0}
    made = document([(" a", {4: (0.00012345, -0.034567), 5: (13271.5, 1234.5)})], title="é" * 150)
    for index in made["features"]:
        made["features"][index] |= long
    write_recording(alone / "a.json", check_recording(made, of="a"))
    write_recording(alone / "b.json", recording([(" b", {3: 1.0})]))
    Sessions(alone / "results/tiny").save(check_recording(made, of="a"))
    for words in (("session", "show", "a.json"), ("session", "list"), ("diff", "a.json", "b.json")):
        told = run(*words)
        assert "…" in told, words
        table = [line for line in told.splitlines() if not line.startswith("title")]
        assert max(map(width, table)) <= 80, words


def test_a_file_that_cannot_be_written_is_told(here: Path, run: Run) -> None:
    (here / "file").touch()
    told = run("record", "one", "--out", "file/a.json", code=1)
    assert "The answer is kept all the same, as session 2" in told
    assert "neuroscope: file/a.json could not be written (" in told
    name = re.search(r"as session ([0-9a-z-]+)\.", told)[1]  # type: ignore[index]
    for place in ("file/a.html", "x" * 300):
        assert f"{place} could not be written (" in run("session", "html", name, "--out", place, code=1)
    assert [path.name for path in here.iterdir()] == ["file"]


def test_a_folder_is_no_recording(alone: Path, run: Run) -> None:
    (alone / "folder.json").mkdir()
    told = run("session", "show", "folder.json", code=1)
    assert "folder.json cannot be read as a recording: it is no regular file." in told


def test_a_reader_that_leaves_ends_the_command_quietly(alone: Path) -> None:
    write_recording(alone / "a.json", recording([(f" w{n}", {n % 32: 1.0}) for n in range(3000)]))
    words = [sys.executable, "-m", "neuroscope.cli", "session", "show", "a.json", "--json"]
    piped = ["sh", "-c", '"$@" | head -c 10', "sh", *words]
    ended = subprocess.run(piped, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.stdout, ended.stderr) == ('{\n  "forma', "")
