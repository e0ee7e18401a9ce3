"""What is known about the features, from results in every state: what fits is used, what does not is named."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from damages import DAMAGES, manifest
from scripted import FINGERPRINT, WIDTH
from scripted_results import LABELLED, empty_examples, label_of, labels, statistics, write_results
from serving import write_config

from neuroscope import imported, settings
from neuroscope.errors import ArtefactError
from neuroscope.known import Known, find_known, look
from neuroscope.labels import LabelSet
from neuroscope.settings import Neuronpedia, Settings
from neuroscope.verification import Check, Fidelity, Verification, write_verification

NUMBERS = tuple(f"feature_{index}" for index in range(WIDTH))
NAMES = {"model_id": "scripted-model", "sae_id": "7-scripted"}
COMMAND = "NEUROSCOPE_PAIRING=tiny snakemake --cores 4 labels"


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose results folder is empty."""
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    pairing = {
        "description": "Names only.",
        "model": "nowhere/model",
        "layer": 7,
        "dtype": "float32",
        "licence": "none",
        "sae": {"source": "nowhere/sae", "format": "gemma_scope", "width": WIDTH},
        "neuronpedia": NAMES,
    }
    return settings.load(config=write_config(tmp_path, pairing=pairing))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with whole results."""
    return write_results(tmp_path_factory.mktemp("made")).parent


@pytest.fixture
def whole(settled: Settings, made: Path) -> Settings:
    """Settings whose results are whole and fit."""
    shutil.copytree(made, settled.results)
    return settled


def known(settled: Settings, before: Known | None = None) -> Known:
    return find_known(settled, FINGERPRINT, before)


def shows_numbers(found: Known) -> bool:
    return found.labels == NUMBERS and found.results is None and found.stats is None


def test_whole_results_that_fit_lack_nothing(whole: Settings) -> None:
    found = known(whole)
    assert found.degraded == ()
    assert found.refused is None
    assert found.labels[:4] == ("label of 0", "label of 1", "label of 2", "label of 3")
    assert found.labels[LABELLED:] == NUMBERS[LABELLED:]
    assert found.label_sources == {"tokens": LABELLED - 1, "neuronpedia": 1}
    assert found.stats is not None
    assert found.stats.firing_rate[10] == 0.2, "of the chat, 100 of 500"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"labels": ()},
            "Features are shown by number, there are no labels. The results hold none. Make them with: ",
        ),
        ({"scores": None}, "No label in results.duckdb has a score"),
        ({"examples": empty_examples()}, "results.duckdb holds no examples"),
        (
            {"stats": statistics(["all"])},
            "The filter uses the statistics of all texts: there are none of the stratum",
        ),
    ],
    ids=["a calibration", "no scores", "no examples", "no chat"],
)
def test_partial_results_are_used_and_what_they_lack_is_said(
    settled: Settings, changes: dict[str, Any], said: str
) -> None:
    write_results(settled.results, **changes)
    found = known(settled)
    (sentence,) = found.degraded
    assert said in sentence
    assert found.results is not None
    assert found.stats is not None
    if "labels" not in changes:
        assert found.labels[10] == label_of(10)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("model", "another/model", "model: made with another/model, in use is scripted/model"),
        ("sae_sha256", "f" * 64, "SAE file: made with ffff"),
        ("layer", 8, "layer: made with 8, in use is 7"),
        ("tokenizer_sha256", "f" * 64, "tokenizer: made with"),
        ("input_norm", "rms", "input norm: made with rms"),
        ("schema_version", 0, "schema version: made with 0"),
    ],
)
def test_results_of_another_pair_of_the_same_width_are_refused_by_name(
    settled: Settings, field: str, value: Any, said: str
) -> None:
    write_results(settled.results, fingerprint=dataclasses.replace(FINGERPRINT, **{field: value}))
    found = known(settled)
    assert shows_numbers(found)
    assert len(found.degraded) == 2
    for sentence in found.degraded:
        assert "results.duckdb is about something else and not used" in sentence
        assert said in sentence
        assert COMMAND in sentence


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_results_are_refused_and_what_was_read_before_stays_known(
    whole: Settings, damage: Callable[[Path], object], said: str
) -> None:
    before = known(whole)
    damage(whole.results)
    found = known(whole)
    assert shows_numbers(found)
    assert len(found.degraded) == 2
    for sentence in found.degraded:
        assert said in sentence
        assert COMMAND in sentence
    after = known(whole, before)
    assert after.refused is not None
    (sentence,) = after.degraded
    assert sentence == f"{after.refused} What was read before is still shown, until the next start."
    assert said in sentence
    assert after.labels == before.labels
    assert after.stats is before.stats
    if after.results is not None:
        page = after.results.feature(10)
        assert page is not None
        assert page["label"] == label_of(10)


def test_a_file_that_cannot_be_opened_is_named(whole: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is unreadable, so the refusal is the kernel's words without the kernel."""

    def refuse(path: Any, *_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("neuroscope.store.held.os.open", refuse)
    for sentence in known(whole).degraded:
        assert "results.duckdb cannot be opened: Permission denied" in sentence


def test_results_that_another_program_is_writing_are_named_with_it(whole: Settings) -> None:
    path = whole.results / "results.duckdb"
    script = (
        f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        refused = known(whole).refused
        writer.communicate("", timeout=30)
    assert refused is not None
    assert f"is open for writing in another program (PID {writer.pid}). Close it there." in refused
    assert known(whole).degraded == ()


def test_a_replaced_set_is_the_new_one_and_the_old_one_can_still_be_read(whole: Settings) -> None:
    before = known(whole)
    assert before.seen == look(whole)
    write_results(whole.results, "another name of")
    assert before.seen != look(whole)
    found = known(whole, before)
    assert (found.labels[10], found.degraded) == ("another name of 10", ())
    assert before.results is not None
    old = before.results.feature(10)
    assert old is not None
    assert old["label"] == "label of 10"


def test_a_set_of_another_sae_never_takes_the_place_of_one_that_fits(whole: Settings) -> None:
    before = known(whole)
    other = dataclasses.replace(FINGERPRINT, sae_sha256="f" * 64)
    write_results(whole.results, "a stranger's", fingerprint=other)
    found = known(whole, before)
    assert found.labels == before.labels
    assert "SAE file: made with ffff" in found.degraded[0]
    assert not any("stranger" in label for label in found.labels)


def test_a_new_database_with_the_manifest_of_the_old_one_waits(whole: Settings) -> None:
    """As a reader finds it between the two renames."""
    before = known(whole)
    old = (whole.results / "manifest.json").read_bytes()
    write_results(whole.results, "another name of")
    new = (whole.results / "manifest.json").read_bytes()
    manifest(whole.results, old)
    assert known(whole, before).labels == before.labels
    manifest(whole.results, new)
    assert known(whole, before).labels[10] == "another name of 10"


def test_bytes_written_into_the_open_file_are_never_mixed_with_what_was_read(
    whole: Settings, tmp_path: Path
) -> None:
    """`cp` over a file keeps the file: the old database's pages would be read beside the new one's."""
    path = whole.results / "results.duckdb"
    before = known(whole)
    assert before.results is not None
    other = write_results(tmp_path / "other", "a stranger's")
    content = other.read_bytes()
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
    with pytest.raises(ArtefactError, match="It was cut or changed in place"):
        before.results.feature(10)
    found = known(whole, before)
    assert found.results is None, "pages are told from memory"
    assert found.labels == before.labels


def test_a_file_whose_time_alone_changed_is_the_same_file(whole: Settings) -> None:
    path = whole.results / "results.duckdb"
    results = known(whole).results
    assert results is not None
    os.utime(path)
    page = results.feature(10)
    assert page is not None
    assert page["label"] == "label of 10"


def import_labels(whole: Settings, frame: pl.DataFrame | None = None, names: dict[str, str] = NAMES) -> Path:
    path = whole.results / imported.LABELS
    path.parent.mkdir(parents=True, exist_ok=True)
    LabelSet(tuple(label for label in labels() if label.source == "neuronpedia")).to_parquet(path)
    imported.write(path, pl.read_parquet(path) if frame is None else frame, Neuronpedia(**names))
    return path


LABEL_DAMAGES: dict[str, tuple[Callable[[Settings], object], str]] = {
    "another pair": (
        lambda s: import_labels(s, names={**NAMES, "sae_id": "8-x"}),
        "is about scripted-model/8-x",
    ),
    "html": (lambda s: import_labels(s).write_text("<html>"), "neuronpedia.parquet cannot be read"),
    "empty": (lambda s: import_labels(s).write_text(""), "neuronpedia.parquet cannot be read"),
    "a folder": (lambda s: (s.results / imported.LABELS).mkdir(parents=True), "is no file that can be read"),
    "more rows than features can have": (
        lambda s: import_labels(s, pl.select(feature=pl.int_range(0, 1_000_000), label=pl.lit("bogus"))),
        "has 1,000,000 rows for 32 features",
    ),
    "features the SAE has not": (
        lambda s: import_labels(s, pl.DataFrame({"feature": [WIDTH], "label": ["beyond"]})),
        "is about more features than this SAE's 32",
    ),
    "labels of numbers": (
        lambda s: import_labels(s, pl.DataFrame({"feature": [1], "label": [5]})),
        "label is 5; a text is expected",
    ),
    "other columns": (
        lambda s: import_labels(s, pl.DataFrame({"x": [1]})),
        "lacks the columns feature, label",
    ),
}


@pytest.mark.parametrize(("damage", "said"), LABEL_DAMAGES.values(), ids=LABEL_DAMAGES)
def test_imported_labels_that_do_not_fit_are_refused_with_the_reason(
    settled: Settings, damage: Callable[[Settings], object], said: str
) -> None:
    damage(settled)
    found = known(settled)
    assert found.labels == NUMBERS
    assert any(said in sentence for sentence in found.degraded), found.degraded


PRIOR_DAMAGES = {
    "text": pl.DataFrame({"feature": ["x"], "firing_rate": [0.5], "max_activation": [1.0]}),
    "nothing": pl.DataFrame(
        {"feature": pl.Series([None], dtype=pl.Int32), "firing_rate": [0.5], "max_activation": [1.0]}
    ),
    "other columns": pl.DataFrame({"feature": [1]}),
    "beyond": pl.DataFrame({"feature": [WIDTH], "firing_rate": [0.5], "max_activation": [1.0]}),
}


@pytest.mark.parametrize("frame", PRIOR_DAMAGES.values(), ids=PRIOR_DAMAGES)
def test_imported_rates_that_do_not_fit_are_refused(settled: Settings, frame: pl.DataFrame) -> None:
    settled.results.mkdir(parents=True)
    imported.write(settled.results / imported.PRIOR, frame, Neuronpedia(**NAMES))
    found = known(settled)
    assert found.stats is None
    assert "neuronpedia.parquet" in found.degraded[0]


def verification(settled: Settings, **changes: Any) -> Path:
    path = settled.results / "verification.json"
    found = Verification(
        (Check("l0", "ok", 40.0, "20 to 60", "as published"),), Fidelity(10, 40.0, 0.1), {}, {}
    )
    settled.results.mkdir(parents=True, exist_ok=True)
    write_verification(path, found, dataclasses.replace(FINGERPRINT, **changes))
    return path


def test_a_verification_that_fits_is_used_and_none_is_no_lack(whole: Settings) -> None:
    assert known(whole).verification is None
    verification(whole)
    found = known(whole)
    assert found.verification is not None
    assert found.degraded == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "verification.json cannot be read"),
        ("[]", "verification.json cannot be read"),
        ("[" * 100_000, "verification.json cannot be read"),
        ('{"checks": 5}', "verification.json cannot be read"),
        (None, "verification.json is about something else (layer: made with 8, in use is 7)"),
    ],
)
def test_a_verification_that_does_not_fit_is_named(whole: Settings, content: str | None, said: str) -> None:
    path = verification(whole, layer=8)
    if content is not None:
        path.write_text(content)
    found = known(whole)
    assert found.verification is None
    (sentence,) = found.degraded
    assert said in sentence
    assert "NEUROSCOPE_PAIRING=tiny neuroscope verify" in sentence


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("no JSON", "cannot be read as JSON"),
        ("[]", "holds a JSON list"),
        ("{}", "is not a stats file"),
        ('{"n_tokens": Infinity, "features": {}}', "is not a stats file"),
        (
            '{"n_tokens": 10, "features": {"0": {"firing_rate": 7, "mean": 1, "variance": 1}}}',
            "outside 0 to 1",
        ),
        (
            '{"n_tokens": 10, "features": {"0": {"firing_rate": 0.5, "mean": 1, "variance": 1}}}',
            "is about 1 features",
        ),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_the_user_s_own_statistics_must_fit_at_the_start_and_stay_in_use_when_they_break(
    tmp_path: Path, made: Path, content: str, said: str
) -> None:
    stats = tmp_path / "stats.json"
    rows = {str(i): {"firing_rate": 0.5, "mean": 1, "variance": 1} for i in range(WIDTH)}
    stats.write_text(json.dumps({"n_tokens": 10, "features": rows}))
    config = write_config(tmp_path, ranking={"stats": str(stats)})
    settled = settings.load(config=config)
    shutil.copytree(made, settled.results)
    before = known(settled)
    stats.write_text(content)
    with pytest.raises(ArtefactError, match=said):
        known(settled)
    found = known(settled, before)
    assert found.stats is before.stats
    (sentence,) = found.degraded
    assert said in sentence
