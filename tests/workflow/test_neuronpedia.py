"""An import from Neuronpedia in the pipeline: what it re-runs, what the database shows, and the command for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from fakes.checkout import PAIRING, Checkout, make_checkout
from fakes.neuronpedia import MODEL, SAE, FakeBucket, activations_of, explanation, feature
from fakes.tiny import D_SAE, TINY_LAYER

from neuroscope import settings
from neuroscope.models.loading import load_model
from neuroscope.sae import load_sae
from neuroscope.stages.results import publish_calibration
from neuroscope.store import open_results

SECOND = (3, 4)
"""Features with two explanations."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[FakeBucket]:
    with FakeBucket() as bucket:
        rows = [explanation(i, f"published {i}") for i in range(D_SAE)]
        bucket.publish("explanations", [*rows, *(explanation(i, f"second {i}", "other") for i in SECOND)], 16)
        bucket.publish("features", [feature(i, 0.25) for i in range(D_SAE)], 16)
        yield bucket


@pytest.fixture(scope="module")
def checkout(bucket: FakeBucket, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Its pairing has names on Neuronpedia; what is published was imported, then `labels` made."""
    checkout = make_checkout(tmp_path_factory.mktemp("neuronpedia"))
    path = checkout.root / f"config/pairings/{PAIRING}.yaml"
    pairing = yaml.safe_load(path.read_text()) | {"neuronpedia": {"model_id": MODEL, "sae_id": SAE}}
    path.write_text(yaml.safe_dump(pairing))
    checkout.configure(neuronpedia={"base_url": bucket.url})
    checkout.snakemake("neuronpedia")
    asked = bucket.requests
    checkout.snakemake("labels")
    assert bucket.requests == asked
    return checkout


def rows(checkout: Checkout, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(checkout.results / "results.duckdb"), read_only=True) as connection:
        return connection.sql(query).fetchall()


def command(checkout: Checkout, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`neuroscope labels import neuronpedia` as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "neuroscope.cli", "labels", "import", "neuronpedia", "--cores", "2", *words],
        cwd=checkout.root,
        env=checkout.environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_calibration_shows_imported_logits(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    made = checkout.results
    publish_calibration(
        settings.load(PAIRING, config=checkout.root / "config/config.yaml"),
        **{name: made / f"{name}.parquet" for name in ("stats", "examples", "neighbours")},
        stats_json=made / "stats.json",
        report=made / "sweep.json",
        logits=made / "neuronpedia_logits.parquet",
        output=tmp_path / "results.duckdb",
    )
    with open_results(tmp_path / "results.duckdb") as results:
        shown = results.feature(5)
    assert shown is not None
    assert [(row["token"], row["weight"], row["token_id"], row["source"]) for row in shown["logits"]] == [
        (" Paris", 1.5, None, "neuronpedia"),
        (" Rome", 1.25, None, "neuronpedia"),
        (" the", -0.5, None, "neuronpedia"),
    ]


def test_imported_labels_join_our_own_and_an_import_re_runs_only_the_results(checkout: Checkout) -> None:
    assert checkout.jobs("labels") == set()
    assert rows(
        checkout, "SELECT count(*), any_value(source) FROM feature WHERE label = 'published ' || feature"
    ) == [(D_SAE, "neuronpedia")]
    assert rows(
        checkout, "SELECT label, source, model, method, rank FROM labels WHERE feature = 3 ORDER BY rank"
    )[:2] == [
        ("published 3", "neuronpedia", "gpt-4o", "np_max-act", 1),
        ("second 3", "neuronpedia", "gpt-4o", "other", 2),
    ]
    assert rows(checkout, "SELECT count(*) FROM labels WHERE source = 'tokens'")[0][0] > D_SAE / 2
    assert {source for (source,) in rows(checkout, "SELECT DISTINCT source FROM scores")} == {"tokens"}
    assert rows(checkout, "SELECT DISTINCT source FROM logits") == [(None,)]
    assert json.loads((checkout.results / "labels.json").read_text())["3"] == "published 3"

    (checkout.results / "labels/neuronpedia.parquet").unlink()
    assert checkout.jobs("labels") - {"labels"} == {"results"}
    checkout.snakemake("labels")
    assert rows(checkout, "SELECT count(*) FROM labels WHERE source = 'neuronpedia'") == [(0,)]
    checkout.snakemake("neuronpedia")
    assert checkout.jobs("labels") - {"labels"} == {"results"}


def test_the_command_imports_and_updates_the_database(checkout: Checkout, bucket: FakeBucket) -> None:
    model, tokenizer = load_model(checkout.root / "model", device="cpu", dtype="float32")
    sae = load_sae(checkout.root / "sae.npz", device="cpu")
    published = activations_of(
        model, tokenizer, sae, [f"the user said {i} times hello" for i in range(9)], TINY_LAYER
    )
    bucket.publish("activations", published)
    done = command(checkout, "--json", "--examples")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["labels"], report["labelled"], report["refused"]) == (D_SAE + len(SECOND), D_SAE, {})
    assert report["examples"]["with_examples"] == len({row["index"] for row in published})
    assert checkout.jobs("verify") - {"chat", "corpus", "sae"} == {"verify"}
    checkout.snakemake("verify")
    checks = json.loads((checkout.results / "verification.json").read_text())["checks"]
    (check,) = [check for check in checks if check["name"] == "neuronpedia"]
    assert (check["verdict"], check["measured"]) == ("ok", 1.0), check
    assert rows(checkout, "SELECT count(*) FROM labels WHERE source = 'neuronpedia'") == [
        (D_SAE + len(SECOND),)
    ]
    assert checkout.jobs("labels") == set()

    asked = bucket.requests
    offline = command(checkout, "--offline", "--examples")
    assert offline.returncode == 0, offline.stderr
    assert "labelled" in offline.stdout
    assert bucket.requests == asked

    bucket.publish("explanations", [explanation(3, "published since")])
    assert json.loads(command(checkout, "--json").stdout)["labels"] == D_SAE + len(SECOND)
    renewed = command(checkout, "--refresh", "--json")
    assert renewed.returncode == 0, renewed.stderr
    assert json.loads(renewed.stdout)["labels"] == 1
    assert rows(checkout, "SELECT label FROM labels WHERE source = 'neuronpedia'") == [("published since",)]
    assert rows(checkout, "SELECT label FROM feature WHERE feature = 3") == [("published since",)]

    checkout.configure(labels={"labeler": "claude-haiku-4-5-20251001", "negatives": 15})
    bucket.publish("explanations", [explanation(3, "published last")])
    unpaid = command(checkout, "--refresh")
    assert unpaid.returncode == 0, unpaid.stderr
    assert rows(checkout, "SELECT label FROM labels WHERE source = 'neuronpedia'") == [("published last",)]
    assert {"claude", "score"} <= checkout.jobs("labels"), (
        "an import neither scores nor asks anybody for labels"
    )


def test_what_cannot_be_done_is_said_in_one_line(checkout: Checkout) -> None:
    both = command(checkout, "--offline", "--refresh")
    assert both.returncode == 2
    assert "--refresh fetches anew, --offline forbids it" in both.stderr
    layer = command(checkout, "--layer", "2", "--sae", str(checkout.root / "sae.npz"))
    assert layer.returncode == 1
    assert "names nothing on Neuronpedia" in layer.stderr.splitlines()[-1]
