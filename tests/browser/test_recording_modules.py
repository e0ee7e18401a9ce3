"""How pages rank the features of a recording, held to Python's own: ranking.js to `ranking.select`."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
from playwright.sync_api import Page
from scripted import Acts
from serving import Server

from neuroscope.ranking import FILTERS, Ranking, select

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
