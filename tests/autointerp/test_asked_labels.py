"""Labels by a language model, from the emulated sweep: every feature ends in a state that is shown."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from fakes.claude import FakeClaude, Fault, Says

from autointerp.asking import MODEL, PRICE
from autointerp.emulated import FEATURES, NUMBER, Sweep
from neuroscope.autointerp.calls.claude import Claude
from neuroscope.autointerp.calls.estimate import estimate
from neuroscope.autointerp.calls.ledger import Ledger
from neuroscope.autointerp.calls.session import Terms
from neuroscope.autointerp.outcome import LabelCounts
from neuroscope.autointerp.pipeline import MIN_EXAMPLES, LabelAsks, ask_for_labels
from neuroscope.autointerp.requests import Requests
from neuroscope.labels import STATES_SCHEMA, read_labels


def requests(sweep: Sweep) -> Requests:
    return Requests(examples=sweep.examples, tokens=sweep.world.text, logits=sweep.logits, stats=sweep.stats)


def ask(sweep: Sweep, folder: Path, found: Requests | None = None) -> LabelCounts:
    with closing(Claude(MODEL)) as client:
        return ask_for_labels(
            found or requests(sweep),
            client,
            Terms(PRICE, 10.0, 4, first_backoff=0.002),
            source="claude",
            ledger=folder / "ledger.jsonl",
            out=folder / "claude.parquet",
            states=folder / "claude.states.parquet",
        )


def states(folder: Path) -> dict[int, tuple[str, str | None]]:
    frame = pl.read_parquet(folder / "claude.states.parquet")
    assert frame.columns == list(STATES_SCHEMA)
    return {feature: (state, reason) for feature, _, state, reason in frame.iter_rows()}


def on(name: str, fault: Fault) -> object:
    """`fault` for every call about one feature."""
    return lambda prompt, time: fault if prompt.startswith(f"Feature {NUMBER[name]}.") else None


def test_a_label_says_what_the_examples_have_in_common(
    claude: FakeClaude, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    counts = ask(emulated_sweep, tmp_path)
    labels = read_labels(tmp_path / "claude.parquet").by_feature
    paris = labels[NUMBER["paris"]]
    assert (paris.label, paris.source, paris.model, paris.confidence) == (
        "the token Paris",
        "claude",
        MODEL,
        "high",
    )
    assert paris.created_at is not None
    assert counts.labelled == len(FEATURES) - 1 == len(labels)
    assert states(tmp_path)[NUMBER["dead"]] == ("dead", "never active in the corpus")
    assert len(states(tmp_path)) == len(FEATURES)


def test_labels_are_a_function_of_ledger_and_evidence(
    claude: FakeClaude, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    ask(emulated_sweep, tmp_path)
    first = (tmp_path / "claude.parquet").read_bytes()
    (tmp_path / "claude.parquet").unlink()
    paid = sum(claude.paid.values())
    ask(emulated_sweep, tmp_path)
    assert (tmp_path / "claude.parquet").read_bytes() == first
    assert sum(claude.paid.values()) == paid


@pytest.mark.parametrize(
    ("says", "state", "reason"),
    [
        (Says("I cannot help with that.", "refusal"), "refused", "the model declined to answer"),
        (Says('{"pattern": "', "max_tokens"), "truncated", "the answer was cut at its token limit"),
        (Says("Sure! It is about cities."), "invalid", "the answer is not one JSON object"),
        (Says("[" * 5000), "invalid", "the answer is not one JSON object"),
        (
            Says(json.dumps({"pattern": "x", "label": "see https://evil.example", "confidence": "high"})),
            "invalid",
            "it contains a URL",
        ),
    ],
    ids=["refused", "truncated", "prose", "nested", "url"],
)
def test_what_is_no_label_is_a_state_with_its_reason(
    claude: FakeClaude, emulated_sweep: Sweep, tmp_path: Path, says: Says, state: str, reason: str
) -> None:
    claude.chance = on("paris", says)  # type: ignore[assignment]
    counts = ask(emulated_sweep, tmp_path)
    found = states(tmp_path)
    assert found[NUMBER["paris"]][0] == state
    assert reason in (found[NUMBER["paris"]][1] or "")
    assert set(found) == set(NUMBER.values())
    assert NUMBER["paris"] not in read_labels(tmp_path / "claude.parquet").by_feature
    assert counts.by_state == {"labelled": len(FEATURES) - 2, state: 1, "dead": 1}
    assert f"1 {state}" in str(counts)


def test_hostile_words_in_a_pattern_are_made_plain(
    claude: FakeClaude, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    text = '{"pattern": "a\\ud800b\\u202ec\\nd", "label": "cities", "confidence": "low"}'
    claude.chance = on("paris", Says(text))  # type: ignore[assignment]
    ask(emulated_sweep, tmp_path)
    row = pl.read_parquet(tmp_path / "claude.parquet").filter(pl.col("feature") == NUMBER["paris"])
    assert row["pattern"].to_list() == ["a b c d"]


def test_a_label_that_copies_an_example_is_flagged_in_its_state(
    claude: FakeClaude, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    found = requests(emulated_sweep)
    top = found.of(NUMBER["paris"]).top
    words = "".join(emulated_sweep.world.text(int(token)) for token in top.windows[0] if token >= 0).split()
    copied = " ".join("".join(c for c in word if c.isalnum()) for word in words[:12])
    text = json.dumps({"pattern": "x", "label": copied, "confidence": "low"})
    claude.chance = on("paris", Says(text))  # type: ignore[assignment]
    ask(emulated_sweep, tmp_path, found)
    assert states(tmp_path)[NUMBER["paris"]] == ("labelled", "copies an example")


def test_a_feature_with_few_examples_is_not_asked_about(
    claude: FakeClaude, emulated_sweep: Sweep, tmp_path: Path
) -> None:
    frame = pl.read_parquet(emulated_sweep.examples)
    few = (pl.col("feature") != NUMBER["paris"]) | (pl.col("rank") < MIN_EXAMPLES - 1)
    examples = tmp_path / "examples.parquet"
    frame.filter(few).write_parquet(examples)
    found = Requests(
        examples=examples,
        tokens=emulated_sweep.world.text,
        logits=emulated_sweep.logits,
        stats=emulated_sweep.stats,
    )
    ask(emulated_sweep, tmp_path, found)
    assert states(tmp_path)[NUMBER["paris"]] == ("insufficient", "too few examples")
    assert not any(prompt.startswith(f"Feature {NUMBER['paris']}.") for prompt in claude.asked)


@pytest.mark.parametrize("counted", [True, False])
def test_an_estimate_comes_close_to_the_bill(
    claude: FakeClaude, emulated_sweep: Sweep, tmp_path: Path, counted: bool
) -> None:
    claude.counts_tokens = counted
    asks, path = LabelAsks(requests(emulated_sweep)), tmp_path / "ledger.jsonl"
    with closing(Claude(MODEL)) as client:
        told = estimate(asks, client, Ledger(path), model=MODEL, price=PRICE, output_tokens=30, concurrency=4)
    assert (told.calls, told.settled) == (len(FEATURES) - 1, 0)
    assert told.usd_batch == told.usd / 2
    assert told.counted_by.startswith("counted by the service" if counted else "estimated: a token for")
    assert not claude.paid
    ask(emulated_sweep, tmp_path)
    bill = Ledger(path)
    spent = sum(call.usd for key in asks.keys.values() for call in bill.of(key, MODEL))
    assert 0.8 * spent < told.usd < 2 * spent, "reads from the cache, which cost less, are not foreseen"
    again = estimate(asks, None, Ledger(path), model=MODEL, price=PRICE, output_tokens=30, concurrency=4)
    assert (again.calls, again.settled, again.usd) == (0, len(FEATURES) - 1, 0.0)
