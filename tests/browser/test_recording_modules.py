"""How pages read and rank a recording, held to Python's own: recording.js to `recording.reading`, ranking.js to
`ranking.select`.
"""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
from browser.kept import recorded
from playwright.sync_api import Page
from scripted import Acts
from serving import Server

from neuroscope.errors import ArtefactError
from neuroscope.ranking import FILTERS, Ranking, select
from neuroscope.recording import parse_recording

WIDTH = 40

SELECT_ALL = """async (cases) => {
  const { select } = await import("/static/ranking.js");
  return cases.map(({ active, ranking, rates }) => {
    const { shown, filteredCount } = select(active, ranking, (index) => rates[index] ?? null);
    return [shown.map(([index]) => index), filteredCount];
  });
}"""


def test_ranking_js_selects_what_python_selects(page: Page, known_server: Server) -> None:
    drawn = [_case(random.Random(seed)) for seed in range(600)]
    page.goto(f"{known_server.features_url}/diff")
    found = page.evaluate(SELECT_ALL, [case for case, _ in drawn])
    expected = [wanted for _, wanted in drawn]
    assert found == expected
    assert len({len(shown) for shown, _ in expected}) > 10
    assert sum(count > 0 for _, count in expected) > 100


def _case(random_: random.Random) -> tuple[dict[str, Any], list[Any]]:
    """A token as a recording holds it with how it is ranked, and what Python shows of it."""
    n = random_.randrange(25)
    indices = np.array(sorted(random_.sample(range(WIDTH), n)), np.int32)
    # Few different values: ties are the difficult part. Some are exactly the bounds.
    values = np.array([random_.choice([0.1, 0.3, 0.7, 2.5, 5.0, 9.1]) for _ in range(n)], np.float32)
    rates = np.array([random_.choice([0.0, 0.1, 0.5, 0.500001, 1.0, np.nan]) for _ in range(WIDTH)])
    scores = np.array([random_.choice([-1.5, 0.0, 2.25, 1e6, np.nan]) for _ in range(WIDTH)])
    ranking = Ranking(
        filter=random_.choice(FILTERS),
        threshold=random_.choice([0.0, 0.1, 0.5, 1.0]),
        top_k=random_.choice([1, 3, 10, 100]),
        min_activation=random_.choice([0.0, 0.0, 0.1, 0.7, 5.0]),
    )
    stats = SimpleNamespace(firing_rate=rates, surprise=lambda wanted, _activations: scores[wanted])
    selection = select(Acts(indices, values), ranking, stats)
    strongest = sorted(range(n), key=lambda k: -values[k])
    case = {
        "active": [[int(indices[k]), float(values[k]), _or_null(scores[indices[k]])] for k in strongest],
        "ranking": {
            "filter": ranking.filter,
            "threshold": ranking.threshold,
            "topK": ranking.top_k,
            "minActivation": ranking.min_activation,
        },
        "rates": {str(index): _or_null(rate) for index, rate in enumerate(rates)},
    }
    return case, [selection.indices.tolist(), selection.filtered_count]


def _or_null(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


CHECK_ALL = """async (texts) => {
  const { parseRecording } = await import("/static/recording.js");
  return texts.map((text) => {
    try {
      parseRecording(text, "it");
      return true;
    } catch {
      return false;
    }
  });
}"""


def _with(document: dict[str, Any], *path: Any, value: Any = None) -> str:
    """The document as JSON with one value of it changed."""
    changed = json.loads(json.dumps(document))
    *above, last = path
    place = changed
    for name in above:
        place = place[name]
    place[last] = value
    return json.dumps(changed)


def test_recording_js_refuses_what_python_refuses(page: Page, known_server: Server) -> None:
    whole = recorded(1)
    places: list[tuple[Any, ...]] = [
        *((name,) for name in whole),
        *(("ranking", name) for name in whole["ranking"]),
        *(("tokens", 2, name) for name in whole["tokens"][2]),
        *(("prompt", 1, name) for name in whole["prompt"][1]),
        *(("features", "3", name) for name in ("label", "firing_rate")),
        *(("tokens", 2, "top_features", 0, n) for n in range(3)),
        ("messages", 0),
        ("degraded", 0),
    ]
    whole |= {"messages": [{"role": "user", "content": "a"}], "degraded": ["a"]}
    values: list[Any] = [None, True, -1, 1.5, 7, 2**31, 2**53, 1e39, "", "constructor", "x" * 201, [], {}]
    drawn = [_with(whole, *path, value=value) for path in places for value in values]
    drawn += [json.dumps({key: v for key, v in whole.items() if key != name}) for name in whole]
    drawn += [json.dumps({**whole, "degraded": ["a"] * 101}), json.dumps(whole), f"\ufeff{json.dumps(whole)}"]
    page.goto(f"{known_server.features_url}/sessions")
    found = page.evaluate(CHECK_ALL, drawn)
    expected = [_is_recording(text) for text in drawn]
    other = [text for text, js, python in zip(drawn, found, expected, strict=True) if js != python]
    assert not other, f"{len(other)} of {len(drawn)}, the first: {other[0]}"
    assert 10 < sum(expected) < len(drawn) / 2


def _is_recording(text: str) -> bool:
    try:
        parse_recording(text, of="it")
    except ArtefactError:
        return False
    return True
