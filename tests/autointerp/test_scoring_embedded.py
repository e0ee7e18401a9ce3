"""Scores whose answer is known on the embedded pairing: its tokenizer, and conversations that its model wrote.

Features are planted there by a rule on the tokens, so that for each of them the right label is known.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from autointerp.emulated import Fires, World, sweep
from neuroscope import settings
from neuroscope.autointerp.accuracy import balanced_accuracy
from neuroscope.autointerp.rules import Rule
from neuroscope.autointerp.scoring import judge
from neuroscope.autointerp.trials import Numbers, Trials
from neuroscope.autointerp.words import Vocabulary
from neuroscope.models.loading import load_tokenizer
from neuroscope.sources import resolve

ROOT = Path(__file__).parents[2]
PLANTED: dict[str, tuple[Fires, Rule]] = {
    "the": (lambda tokens, i, _: tokens[i] in (" the", "The", " The"), Rule("word", ("the",))),
    "and": (lambda tokens, i, _: tokens[i] in (" and", "And", " And"), Rule("word", ("and",))),
    "digits": (lambda tokens, i, _: tokens[i].strip().isdigit(), Rule("class", ("numbers",))),
    "after of": (lambda tokens, i, _: i > 0 and tokens[i - 1] == " of", Rule("after", ("of",))),
    "can": (lambda tokens, i, _: tokens[i] in (" can", "Can", " Can"), Rule("word", ("can",))),
}


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    tokenizer = load_tokenizer(resolve(settings.load_pairing("smollm2-135m").model).path)
    vocabulary = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    written = (ROOT / "workflow/resources/smollm2-135m-chat.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [message["content"] for line in written for message in json.loads(line)]
    documents = [
        [vocabulary[token] for token in tokenizer.encode(text, add_special_tokens=False)] for text in texts
    ]
    world = World(documents, ["chat"] * len(documents), vocabulary)
    files = sweep(
        world,
        tmp_path_factory.mktemp("embedded"),
        features={name: fires for name, (fires, _) in PLANTED.items()},
    )
    return Trials(
        files.examples,
        files.pool,
        Vocabulary(world.text),
        numbers=Numbers(),
        neighbours=files.neighbours,
    )


def score(rule: Rule, trials: Trials, planted: str) -> float:
    trial = trials.of([*PLANTED].index(planted))
    found = balanced_accuracy(judge(rule, trial.positives, trial.negatives))
    assert found is not None
    return found.balanced_accuracy


@pytest.mark.parametrize("planted", PLANTED)
def test_the_right_label_scores_near_one(trials: Trials, planted: str) -> None:
    assert score(PLANTED[planted][1], trials, planted) > 0.94


def test_labels_of_other_features_score_near_a_half(trials: Trials) -> None:
    others = [score(PLANTED[a][1], trials, b) for a, b in itertools.permutations(PLANTED, 2)]
    assert sum(others) / len(others) == pytest.approx(0.5, abs=0.1)
