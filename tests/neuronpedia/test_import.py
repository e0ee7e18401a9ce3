"""A whole import of a 16k SAE from a bucket on loopback, and what the server makes of it without any calibration."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fakes.neuronpedia import FakeBucket, activation, explanation, feature

from neuroscope import imported, settings
from neuroscope.errors import ArtefactError, LabelError, SourceError
from neuroscope.labels import LabelSet, read_labels
from neuroscope.neuronpedia import import_examples, import_features, refresh
from neuroscope.settings import Neuronpedia, Settings
from neuroscope.sources import batches

WIDTH = 16_384
SIZE = 256
TWICE = 3
"""Every third feature has a second explanation."""
NAMES = Neuronpedia("gemma-2-2b", "20-gemmascope-res-16k")


@pytest.fixture(scope="module")
def published() -> dict[str, bytes]:
    """64 batches of each kind."""
    with FakeBucket() as bucket:
        texts = [explanation(i, f"what feature {i} is about") for i in range(WIDTH)]
        texts += [
            explanation(i, f"another word for {i}", "oai_token", "gpt-3.5") for i in range(0, WIDTH, TWICE)
        ]
        bucket.publish("explanations", texts, len(texts) // 64 + 1)
        bucket.publish("features", [feature(i, i / WIDTH, i + 1.0) for i in range(WIDTH)], SIZE)
        shown = [
            activation(i, ["<bos>", " a", " b"], [0.0, 1.0 + k, 0.5]) for i in range(WIDTH) for k in range(3)
        ]
        bucket.publish("activations", shown, SIZE * 3)
    return bucket.files


@pytest.fixture
def bucket(
    published: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeBucket]:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(batches, "BACKOFF_S", 0.001)
    with FakeBucket(NAMES.model_id, NAMES.sae_id) as bucket:
        bucket.files = dict(published)
        yield bucket


@pytest.fixture
def settled(bucket: FakeBucket, tmp_path: Path) -> Settings:
    overrides = {
        "neuronpedia.base_url": bucket.url,
        "neuronpedia.examples": 2,
        "results": str(tmp_path / "{pairing}"),
    }
    return settings.load("gemma-2-2b-it", overrides=overrides)


def run(settled: Settings) -> dict[str, object]:
    """The report of an import into the results folder."""
    folder = settled.results
    import_features(
        settled,
        labels=folder / imported.LABELS,
        prior=folder / imported.PRIOR,
        logits=folder / imported.LOGITS,
        report=folder / "neuronpedia.json",
    )
    found: dict[str, object] = json.loads((folder / "neuronpedia.json").read_text())
    return found


def test_every_feature_of_a_16k_sae_is_covered(settled: Settings) -> None:
    report = run(settled)
    labels = read_labels(settled.results / imported.LABELS)
    assert len(labels.labels) == WIDTH + len(range(0, WIDTH, TWICE))
    assert LabelSet(labels.labels).texts(WIDTH) == [f"what feature {i} is about" for i in range(WIDTH)]
    prior = imported.read_prior(settled.results, NAMES, WIDTH)
    assert prior is not None
    assert prior.firing_rate.tolist() == [i / WIDTH for i in range(WIDTH)]
    assert prior.max_activation[7] == 8
    logits = pl.read_parquet(settled.results / imported.LOGITS)
    assert logits["feature"].n_unique() == WIDTH
    counts = {"labelled": WIDTH, "with_firing_rate": WIDTH, "with_logits": WIDTH, "refused": {}}
    assert {key: report[key] for key in counts} == counts
    assert report["batches"] == {"explanations": 64, "features": 64}
    assert report["methods"] == {
        "np_max-act (gpt-4o)": WIDTH,
        "oai_token (gpt-3.5)": len(range(0, WIDTH, TWICE)),
    }


def test_examples_are_the_strongest_of_every_feature(settled: Settings) -> None:
    path = settled.results / imported.EXAMPLES
    import_examples(settled, output=path, report=settled.results / "neuronpedia_examples.json")
    found = imported.read_examples(path, NAMES)
    assert found is not None
    assert len(found) == 2 * WIDTH
    assert found.filter(feature=WIDTH - 1)["activation"].to_list() == [3.0, 2.0]


def test_a_killed_import_is_finished_by_the_next_and_asks_only_for_the_rest(
    bucket: FakeBucket, settled: Settings, tmp_path: Path
) -> None:
    bucket.faults = {"features/batch-40.jsonl.gz": ["hang"]}
    script = (
        "from pathlib import Path; from neuroscope import settings; from neuroscope.neuronpedia import import_features;"
        f"p = Path({str(tmp_path / 'other')!r});"
        f"s = settings.load('gemma-2-2b-it', overrides={{'neuronpedia.base_url': {bucket.url!r}}});"
        "import_features(s, labels=p, prior=p, logits=p, report=p)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ}, stderr=subprocess.DEVNULL)
    assert bucket.hanging.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "other").exists()
    before = bucket.asked.copy()
    assert run(settled)["labelled"] == WIDTH
    assert not [
        name for name in bucket.asked if name.startswith("explanations") and bucket.asked[name] > before[name]
    ]
    features = [name for name in bucket.files if name.startswith("features")]
    assert 15 <= sum(bucket.asked[name] > before[name] for name in features) <= 64 - 33


def test_it_is_imported_again_without_the_network(
    bucket: FakeBucket, settled: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, asked = run(settled), bucket.requests
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert run(settled) == first
    assert bucket.requests == asked
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE=0"):
        import_examples(settled, output=settled.results / "a", report=settled.results / "b")


def test_a_refresh_of_what_is_published_no_more_says_so(bucket: FakeBucket, settled: Settings) -> None:
    refresh(settled, examples=False)
    bucket.files.clear()
    with pytest.raises(LabelError, match="Neuronpedia has no explanations or features of model"):
        refresh(settled, examples=False)


def test_a_refresh_sees_what_was_published_since(bucket: FakeBucket, settled: Settings) -> None:
    run(settled)
    bucket.publish("explanations", [explanation(5, "something new")])
    assert run(settled)["labels"] != 1
    refresh(settled, examples=False)
    assert run(settled)["labels"] == 1


def test_network_faults_do_not_show_in_the_result(bucket: FakeBucket, settled: Settings) -> None:
    for number, fault in enumerate(("reset", "503", "truncated", "cut", "500", "429")):
        bucket.faults[f"explanations/batch-{number * 7}.jsonl.gz"] = [fault]
        bucket.faults[f"features/batch-{number * 9}.jsonl.gz"] = [fault, fault]
    assert run(settled)["labelled"] == WIDTH


@pytest.mark.parametrize("status", [404, 403])
def test_names_that_are_not_there_say_which_field_to_change(
    bucket: FakeBucket, settled: Settings, status: int
) -> None:
    bucket.missing_status = status
    wrong = replace(
        settled, pairing=replace(settled.pairing, neuronpedia=Neuronpedia("gemma-2-2b", "21-nothing"))
    )
    with pytest.raises(LabelError, match="'gemma-2-2b', source '21-nothing'") as raised:
        run(wrong)
    assert "neuronpedia.sae_id in config/pairings/gemma-2-2b-it.yaml" in str(raised.value)
    assert not (settled.results / imported.LABELS).exists()


def test_a_pairing_without_names_says_where_they_go(settled: Settings) -> None:
    nameless = replace(settled, pairing=replace(settled.pairing, neuronpedia=None))
    with pytest.raises(LabelError, match=r"neuronpedia\.model_id and neuronpedia\.sae_id in config/pairings"):
        run(nameless)


def test_data_of_a_wider_sae_is_refused_and_nothing_is_written(settled: Settings) -> None:
    sae = replace(settled.pairing.sae, width=1000)
    with pytest.raises(LabelError, match="this SAE has 1,000"):
        run(replace(settled, pairing=replace(settled.pairing, sae=sae)))
    assert not settled.results.exists()


def test_an_sae_without_explanations_gives_its_rates(bucket: FakeBucket, settled: Settings) -> None:
    bucket.publish("explanations", [])
    report = run(settled)
    assert (report["labels"], report["with_firing_rate"]) == (0, WIDTH)
    assert read_labels(settled.results / imported.LABELS).labels == ()


def test_what_was_imported_for_another_pair_is_not_used(settled: Settings) -> None:
    run(settled)
    other = Neuronpedia("gemma-2-2b", "12-gemmascope-res-16k")
    for read in (imported.read_prior, imported.read_imported_labels):
        with pytest.raises(ArtefactError, match="is about gemma-2-2b/20-gemmascope-res-16k"):
            read(settled.results, other, WIDTH)
        with pytest.raises(ArtefactError, match=r"more features than this SAE's 1,000"):
            read(settled.results, NAMES, 1000)
    assert imported.read_prior(settled.results, None, WIDTH) is None
    assert imported.read_imported_labels(settled.results, None, WIDTH) == LabelSet()


def test_a_damaged_prior_is_said(settled: Settings) -> None:
    run(settled)
    (settled.results / imported.PRIOR).write_bytes(b"no parquet")
    with pytest.raises(ArtefactError, match="neuroscope labels import neuronpedia"):
        imported.read_prior(settled.results, NAMES, WIDTH)


def test_a_rate_that_is_not_published_is_unknown(bucket: FakeBucket, settled: Settings) -> None:
    bucket.publish("features", [feature(1, 0.5), feature(2, math.nan)])
    run(settled)
    prior = imported.read_prior(settled.results, NAMES, WIDTH)
    assert prior is not None
    assert prior.n_known == 1
    assert np.isnan(prior.firing_rate[[0, 2, 3]]).all()
