"""What the report tells of a small database, number by number, and what it warns of."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_report
import numpy as np
import pytest
from made_report import HOSTILE, IN_CHAT, WIDTH

from neuroscope import store
from neuroscope.errors import ArtefactError
from neuroscope.labels import Label
from neuroscope.report.drift import Drift
from neuroscope.report.numbers import Coverage, Firing, Missing
from neuroscope.report.reading import read_report
from neuroscope.report.record import Report
from neuroscope.settings import Settings
from neuroscope.verification import Check, Fidelity, Verification, write_verification


def changed(settled: Settings, **changes: Any) -> Report:
    return read_report(settled, made_report.build(settled, **changes))


def verified(settled: Settings, verdict: Any = "ok", warnings: tuple[str, ...] = (), **other: Any) -> None:
    check = Check("l0", verdict, 3.0, "<= 4", "mean active features")
    overall, code = Fidelity(100, 3.0, 0.25), Fidelity(60, 3.0, 0.5)
    found = Verification((check,), overall, {"code": code}, {"none": overall}, warnings)
    with store.open_results(settled.results / "results.duckdb") as results:
        write_verification(
            settled.results / "verification.json", found, replace(results.fingerprint(), **other)
        )


def test_the_figures_are_those_of_the_database(report: Report) -> None:
    assert report.pairing == "smollm2-135m"
    assert [of.name for of in report.strata] == ["chat", "code", "all"]
    assert (report.overall.tokens, report.overall.documents) == (3000, 30)
    assert report.strata[0].l0 == pytest.approx(IN_CHAT.sum() / 1000)
    assert [of.silent for of in report.strata] == [1, 2, 1]
    assert isinstance(report.firing, Firing)
    assert (report.firing.dead, report.firing.rare, report.firing.always_on) == (1, 0, 0)
    assert isinstance(report.coverage, Coverage)
    assert report.coverage.late == 1
    assert [(of.name, of.labelled, of.shown) for of in report.sources] == [("claude", 1, 1), ("tokens", 9, 9)]
    assert report.published_l0 == 40.2


def test_scores_are_summed_up_by_source_and_method(report: Report) -> None:
    assert isinstance(report.scores, tuple)
    (score,) = report.scores
    assert (score.source, score.method, score.scored, score.failed) == ("tokens", "rule", 8, 1)
    assert score.mean == pytest.approx(0.45)


def test_drift_is_found_where_it_was_put(report: Report) -> None:
    assert isinstance(report.drift, Drift)
    (pair,) = report.drift.pairs
    assert (pair.compared, pair.differ) == (WIDTH - 1, 2), "14 and 15; the dead one is not compared"


def test_features_worth_a_look_are_those_at_the_ends(report: Report) -> None:
    groups = {group.title: [(row.feature, row.figure) for row in group.features] for group in report.notable}
    assert groups["Best scores"][:2] == [(8, "0.80"), (7, "0.70")]
    assert groups["Worst scores"][:2] == [(1, "0.10"), (2, "0.20")]
    assert groups["Strongest"][0] == (15, "3.5")
    assert groups["Most frequent"][0] == (14, f"{1260 / 3000:.1%}")
    assert groups["Most different between texts"][:2] == [
        (15, "600 times less in code"),
        (14, "4 times more in code"),
    ]
    shown = {row.feature: row.label for group in report.notable for row in group.features}
    assert shown[14] == "feature_14"
    assert shown[15] == HOSTILE.replace("\ud800", "?")


def test_the_record_is_plain_json(report: Report) -> None:
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["strata"][-1]["tokens"] == 3000
    assert told["firing"]["dead"] == 1
    assert told["drift"]["pairs"][0]["differ"] == 2
    assert "log2_ratio" not in told["drift"]
    assert told["fingerprint"]["d_sae"] == WIDTH


def test_each_warning_names_the_next_command(report: Report) -> None:
    text = "\n".join(report.warnings)
    assert "The mean L0 is" in text
    assert "published is 40.2" in text
    assert "NEUROSCOPE_PAIRING=smollm2-135m neuroscope verify" in text
    assert "The last 10% of the tokens added 1 of 16 features" in text
    assert "No label of claude has a score" in text
    assert "Labels of tokens reach 0.45 on average by rule" in text
    assert "drift" not in text, "2 of 15 features differ"


def test_a_verification_that_fits_gives_fvu_and_its_warnings(empty: Settings) -> None:
    path = made_report.build(empty)
    verified(empty, warnings=("The SAE describes code text badly.",))
    found = read_report(empty, path)
    assert [of.fvu for of in found.strata] == [None, 0.5, 0.25]
    assert "The SAE describes code text badly." in found.warnings
    verified(empty, "off")
    assert any("verification failed on l0" in warning for warning in read_report(empty, path).warnings)
    verified(empty, layer=9)
    found = read_report(empty, path)
    assert found.overall.fvu is None
    assert any("verification.json is about something else" in warning for warning in found.warnings)
    (empty.results / "verification.json").write_text('{"checks": [')
    assert any("cannot be read" in warning for warning in read_report(empty, path).warnings)


def test_results_without_labels_say_so(empty: Settings) -> None:
    found = changed(empty, labels=(), scores=None)
    assert found.scores == Missing("No label has a score.")
    assert found.sources == ()
    assert any("There are no labels" in warning for warning in found.warnings)
    titles = [group.title for group in found.notable]
    assert "Best scores" not in titles
    assert "Strongest" in titles


def test_labels_without_scores_say_so(empty: Settings) -> None:
    found = changed(empty, scores=None)
    assert any("No label has a score: how far to trust them" in warning for warning in found.warnings)


def test_one_stratum_is_no_comparison(empty: Settings) -> None:
    found = changed(empty, stats=made_report.statistics({"chat": (1000, IN_CHAT)}))
    assert found.drift == Missing("Two kinds of text are needed to compare; measured: chat.")
    assert any("measured: chat" in warning for warning in found.warnings)


def test_results_without_a_report_of_their_sweep_miss_two_plots(empty: Settings) -> None:
    found = changed(empty, report=None)
    assert isinstance(found.active_features, Missing)
    assert isinstance(found.coverage, Missing)
    assert found.overall.documents is None


@pytest.mark.parametrize(
    "sweep", [{"strata": 3}, {"coverage": [1]}, {"coverage": [{"tokens": "x"}]}, {"strata": {"chat": []}}]
)
def test_a_report_of_a_sweep_that_is_none_is_named(sweep: dict[str, Any], empty: Settings) -> None:
    path = made_report.build(empty, report=sweep)
    with pytest.raises(ArtefactError, match="holds no report of a sweep"):
        read_report(empty, path)


def test_features_that_all_are_dead_and_a_width_of_one(empty: Settings) -> None:
    silent = np.zeros(1, np.int64)
    one = made_report.make_fingerprint(d_sae=1)
    stats = made_report.statistics({"chat": (50, silent), "code": (50, silent)})
    found = changed(empty, stats=stats, fingerprint=one, labels=(), scores=None)
    assert isinstance(found.firing, Firing)
    assert (found.firing.dead, found.firing.features) == (1, 1)
    assert isinstance(found.strength, Missing)
    assert found.notable == ()
    assert any("1 of 1 features never fired" in warning for warning in found.warnings)


def test_few_tokens_and_drift_are_warned_of(empty: Settings) -> None:
    few = np.array([1] * 8 + [20] * 8)
    stats = made_report.statistics({"chat": (100, few), "code": (100, 5 * few)})
    found = changed(empty, stats=stats, labels=[Label(1, "tokens", "x", None)], scores=None)
    text = "\n".join(found.warnings)
    assert "Few tokens: 8 of 16 features fired fewer than 10 times in 200 tokens" in text
    assert "Firing rates drift: 8 of 8 features" in text


def test_files_of_the_repository_are_named_from_there(empty: Settings) -> None:
    inside, elsewhere = f"{empty.root}/workflow/resources/an-sae", "/home/somebody/models/a-model/file.gguf"
    fingerprint = made_report.make_fingerprint(d_sae=WIDTH, sae=inside, model=elsewhere)
    found = changed(empty, fingerprint=fingerprint).fingerprint
    assert found.sae == "workflow/resources/an-sae"
    assert found.model == ".../a-model/file.gguf", "where somebody keeps models is nobody's business"


def test_a_database_cut_short_is_named(empty: Settings, settled: Settings, tmp_path: Path) -> None:
    empty.results.mkdir(parents=True)
    for name in ("results.duckdb", "manifest.json"):
        shutil.copy(settled.results / name, empty.results / name)
    path = empty.results / "results.duckdb"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ArtefactError, match="not the file that manifest"):
        read_report(empty, path)
