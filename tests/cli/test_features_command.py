"""`neuroscope features`: the same from the running server and from the results, and it says which."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scripted_results
from at_terminal import run
from serving import Server, free_ports, serving

from neuroscope.cli import main


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    (folder / "results/tiny").mkdir(parents=True)
    scripted_results.write_results(folder / "results/tiny")
    with serving(folder, env={"SCRIPTED_RESULTS": "1"}) as running:
        yield running


@pytest.fixture
def offline(results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command beside the small results; the ports of its settings are nobody's."""
    config = results.parents[2] / "config/config.yaml"
    text = config.read_text()
    port, features_port = free_ports()
    text = text.replace("port: 8080", f"port: {port}").replace(
        "features_port: 8081", f"features_port: {features_port}"
    )
    config.write_text(text)

    def offline(*words: str, code: int = 0) -> tuple[str, str]:
        assert main(["features", *words]) == code
        captured = capsys.readouterr()
        return captured.out, captured.err

    return offline


# --- from the server


def test_a_feature_is_shown_with_all_that_is_known(server: Server) -> None:
    done = run(server, "features", "show", "4", COLUMNS="100")
    assert done.stderr == f"From the server at 127.0.0.1:{server.features_port}.\n"
    told = {line[2:15].strip() or n: line[15:] for n, line in enumerate(done.stdout.splitlines())}
    assert done.stdout.splitlines()[0] == "feature 4  an imported name"
    assert told["source"] == "neuronpedia (gpt-4o-mini, oai_token-act-pair)"
    assert told["other labels"].startswith(
        "label of 4 [tokens (distinctive tokens), confidence high; rule 0.54 (0.49"
    )
    assert told["labelers"] == "claude: refused (it has 16 words (at most 15))"
    assert told["histogram"] == "1 █  █ 4 tokens by activation, at most 20 in a bar"
    assert (told["promoted"], told["suppressed"]) == ("␣cat", "␣the")
    assert told["fires with"].split() == ["0.5", "30", "feature_30"]
    assert told["examples"].split(maxsplit=2) == ["9.5", "chat", "the« cat» sat"]
    assert told["neuronpedia"] == "https://www.neuronpedia.org/scripted-model/7-scripted/4"


def test_json_is_the_servers_page(server: Server) -> None:
    done = run(server, "features", "show", "4", "--json", "--examples", "1")
    assert json.loads(done.stdout) == server.get("/v1/features/4?n=1").json()
    assert (
        json.loads(run(server, "features", "show", "4", "--json", "--examples", "0").stdout)["examples"] == []
    )


def test_labels_are_searched_and_the_rest_is_counted(server: Server) -> None:
    done = run(server, "features", "search", "LABEL OF 1", "--limit", "2")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["feature", "label", "source", "score", "firing_rate", "max"]
    assert [row.split() for row in rows] == [
        [str(f), "label", "of", str(f), "tokens", f"0.{50 + f}", f"0.{f}", "3"] for f in (19, 18)
    ]
    assert "2 of 11; --limit shows more." in done.stderr
    done = run(server, "features", "search", "label of 4", "--all-labels", "--json")
    (found,) = json.loads(done.stdout)["features"]
    assert found["matched"] == [{"source": "tokens", "label": "label of 4"}]
    done = run(server, "features", "search", "no such words")
    assert (done.returncode, done.stdout) == (0, "")
    assert "No feature matches." in done.stderr


@pytest.mark.parametrize(
    ("words", "first"),
    [((), 27), (("--by", "rate"), 31), (("--by", "rate", "--ascending"), 0), (("--by", "max"), 1)],
)
def test_features_are_listed_by_what_is_largest(server: Server, words: tuple[str, ...], first: int) -> None:
    found = json.loads(run(server, "features", "top", "--limit", "1", "--json", *words).stdout)
    assert [row["feature"] for row in found["features"]] == [first]


def test_a_feature_that_is_not_there_is_told(server: Server) -> None:
    done = run(server, "features", "show", "32")
    assert done.returncode == 1
    assert "There is no feature 32; the SAE has 32, from 0 to 31." in done.stderr


# --- from the results


def test_without_a_server_the_results_are_read_and_that_is_said(offline: Any, results: Path) -> None:
    out, errors = offline("show", "0")
    assert out.startswith("feature 0  animals that people keep\n")
    assert "https://www.neuronpedia.org/a-model/1-res-8/0" in out
    assert errors.startswith(f"From {results}. No server at 127.0.0.1:")
    out, errors = offline("show", "0", "--offline")
    assert errors == f"From {results}.\n"


def test_both_ways_give_the_same_json(server: Server, offline: Any, results: Path, tmp_path: Path) -> None:
    """The scripted server cannot serve the small results; so the same code is shown to give the same fields."""
    online = json.loads(run(server, "features", "show", "4", "--json").stdout)
    read = json.loads(offline("show", "0", "--json", "--offline")[0])
    assert list(read) == list(online)
    assert list(read["examples"][0]) == list(online["examples"][0])
    listed = json.loads(run(server, "features", "top", "--json").stdout)
    found = json.loads(offline("top", "--json")[0])
    assert list(found) == list(listed)
    assert list(found["features"][0]) == list(listed["features"][0])
    assert [row["feature"] for row in found["features"][:2]] == [0, 1]
