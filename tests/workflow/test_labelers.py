"""Labels by Claude and from a file, as they are used: the real Snakefile, the real SDK, a service on loopback."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from fakes.checkout import PAIRING, Checkout
from fakes.claude import UNKNOWN_KEY, FakeClaude, Says
from fakes.tiny import D_SAE

from neuroscope.cli import main

MODEL = "claude-haiku-4-5-20251001"
CLAUDE = ("--forcerun", "claude")


@pytest.fixture
def claude() -> Iterator[FakeClaude]:
    with FakeClaude() as served:
        yield served


@pytest.fixture
def checkout(finished: Checkout, tmp_path: Path) -> Checkout:
    """A copy of the finished run. Its paths are others, so only what is newer than what was made of it counts."""
    shutil.copytree(finished.root, tmp_path / "a copy", symlinks=True)
    return Checkout(tmp_path / "a copy")


def labels(checkout: Checkout, *words: str, check: bool = True, **more: str) -> str:
    """Runs the target `labels`; what it said."""
    done = checkout.snakemake("labels", "--rerun-triggers", "mtime", *words, check=False, **more)
    assert (done.returncode == 0) == check, done.stderr
    return done.stderr


def rows(checkout: Checkout, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(checkout.results / "results.duckdb"), read_only=True) as connection:
        return connection.sql(query).fetchall()


def secrets(claude: FakeClaude) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": claude.url, "ANTHROPIC_API_KEY": "sk-secretsecret", "NO_PROXY": "127.0.0.1"}


def test_the_labeler_decides_whose_labels_are_made(finished: Checkout, tmp_path: Path) -> None:
    def jobs(**of_labels: object) -> set[str]:
        path = tmp_path / "labels.yaml"
        path.write_text(yaml.safe_dump({"labels": of_labels}))
        return finished.jobs("labels", "--configfile", str(path)) - {"labels"}

    assert jobs(labeler="tokens") == set()
    assert jobs(labeler=MODEL) == {"claude", "score", "results"}
    assert jobs(labeler="openai", model="m", base_url="http://127.0.0.1/v1") == {"openai", "score", "results"}
    own = tmp_path / "mine.json"
    own.write_text("{}")
    assert jobs(labeler="file", file=str(own)) == {"own_labels", "score", "results"}


def test_claude_labels_come_first_and_those_of_tokens_stand_in(
    checkout: Checkout, claude: FakeClaude
) -> None:
    before = (checkout.results / "results.duckdb").read_bytes()
    checkout.configure(labels={"labeler": MODEL, "concurrency": 2})
    told = labels(checkout, *CLAUDE, check=False, **{**secrets(claude), "ANTHROPIC_API_KEY": ""})
    assert "neuroscope: ANTHROPIC_API_KEY is not set" in told
    assert not claude.asked

    claude.chance = lambda prompt, time: UNKNOWN_KEY if sum(claude.asked.values()) >= 10 else None
    told = labels(checkout, *CLAUDE, check=False, **secrets(claude))
    assert "neuroscope: ANTHROPIC_API_KEY is not accepted" in told
    assert (checkout.results / "results.duckdb").read_bytes() == before

    claude.chance = lambda prompt, time: Says("no", "refusal") if prompt.startswith("Feature 1") else None
    told = labels(checkout, *CLAUDE, **secrets(claude))
    assert re.search(r"\d+ features labelled \(.* without a label \(.*\d+ refused.*\), \$0\.\d\d", told)
    assert claude.paid_twice == {}
    sources = dict(rows(checkout, "SELECT source, count(*) FROM feature WHERE source IS NOT NULL GROUP BY 1"))
    assert sources["claude"] > 10
    assert sources["tokens"] > 0
    states = rows(checkout, "SELECT source, count(DISTINCT feature) FROM label_states GROUP BY 1 ORDER BY 1")
    assert states == [("claude", D_SAE), ("tokens", D_SAE)]
    holding = [p for p in checkout.root.rglob("*") if p.is_file() and b"secretsecret" in p.read_bytes()]
    assert not holding


def test_labels_that_were_paid_for_stay_when_a_later_run_has_another_labeler(
    checkout: Checkout, claude: FakeClaude
) -> None:
    scores = "SELECT * FROM scores WHERE source = 'claude' ORDER BY ALL"
    checkout.configure(labels={"labeler": MODEL})
    labels(checkout, *CLAUDE, **secrets(claude))
    paid, before = sum(claude.paid.values()), rows(checkout, scores)
    assert before
    checkout.configure(labels={"labeler": "tokens"})
    labels(checkout, "--forcerun", "score")
    assert rows(checkout, scores) == before
    states = rows(checkout, "SELECT source, count(DISTINCT feature) FROM label_states GROUP BY 1 ORDER BY 1")
    assert states == [("claude", D_SAE), ("tokens", D_SAE)]
    assert rows(checkout, "SELECT count(*) FROM feature WHERE source = 'claude'")[0][0] > 10

    checkout.configure(labels={"labeler": "tokens", "scorer": MODEL})
    labels(checkout, "--forcerun", "score", **secrets(claude))
    assert rows(checkout, scores) == before, "by the verdicts in the ledger"
    assert sum(claude.paid.values()) == paid
    (checkout.results / "labels/claude.parquet").unlink()
    labels(checkout, "--forcerun", "score", **secrets(claude))
    assert not rows(checkout, scores)


def test_a_dry_run_tells_the_price_and_pays_nothing(
    checkout: Checkout,
    claude: FakeClaude,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in {**checkout.environment(), **secrets(claude)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(checkout.root)
    words = ["labels", "generate", "--pairing", PAIRING, "--dry-run", "--json"]
    assert main([*words, "--labeler", MODEL]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["calls"] > D_SAE / 2
    assert told["usd"] == pytest.approx(2 * told["usd_batch"])
    assert told["counted_by"] == "counted by the service on 20 prompts"
    assert told["scorer"] == MODEL
    assert told["scores_calls"] > 5
    assert told["scores_usd"] == pytest.approx(2 * told["scores_usd_batch"])
    assert main([*words, "--labeler", MODEL, "--no-score"]) == 0
    assert "scores_calls" not in json.loads(capsys.readouterr().out)
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"labeler": "tokens", "calls": 0, "usd": 0.0}
    assert not claude.paid
    (checkout.results / "logits.parquet").unlink()
    assert main([*words, "--labeler", MODEL]) == 1
    assert "lacks logits.parquet" in capsys.readouterr().err
    assert main([*words, "--labeler", "claude-unheard-of"]) == 1


def test_own_labels_are_shown_and_a_feature_without_one_says_why(
    checkout: Checkout,
    finished: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (checkout.root / "mine.json").write_text('{"3": "mine alone", "4": "see www.example.org"}')
    checkout.configure(labels={"labeler": "file", "file": "mine.json"})
    labels(checkout)
    assert rows(checkout, "SELECT label, source FROM feature WHERE feature = 3") == [("mine alone", "file")]
    for name, value in checkout.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(checkout.root)
    made_with = ["--pairing", PAIRING, "--model", str(finished.root / "model")]
    assert main(["labels", "show", *made_with, "--features", "3,4", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["label"] == "mine alone"
    assert {"source": "file", "state": "labelled", "reason": None} in first["labelers"]
    assert second["source"] == "tokens"
    (told,) = (one for one in second["labelers"] if one["source"] == "file")
    assert told["state"] == "invalid"
    assert "it contains a URL" in told["reason"]
