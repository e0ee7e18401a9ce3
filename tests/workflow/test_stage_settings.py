"""Each stage reads only the settings that its rule tells Snakemake about; anything else would go stale unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fakes.checkout import Checkout
from fakes.completions import FakeCompletions
from fakes.neuronpedia import MODEL, SAE, FakeBucket, activation, explanation

from neuroscope import settings, stages
from neuroscope.corpus.stage import build_chat, build_documents, join
from neuroscope.labels import Label, LabelSet
from neuroscope.neuronpedia import import_examples, import_features
from neuroscope.report.stage import make_report
from neuroscope.settings import Neuronpedia
from neuroscope.stages.asking import ask_labels, take_labels
from neuroscope.stages.labels import make_labels, make_logits
from neuroscope.stages.results import publish, publish_calibration
from neuroscope.stages.sae import fetch_sae
from neuroscope.stages.scores import make_scores
from neuroscope.sweep import merge, run_shard
from neuroscope.training.stage import train_sae
from neuroscope.verify import verify_pairing

FREE = {"root", "results"}
"""Where files are, not what is in them."""
HOW = {f"labels.{name}" for name in ("concurrency", "batch", "max_cost_usd", "prices.input", "prices.output")}
"""How a language model is asked, not what."""
FREE |= HOW | {"labels.api_key_env"}
PROPERTIES = {
    "pairing.export_name": {"pairing.neuronpedia", "pairing.name", "pairing.layer"},
    "pairing.sae.uri": {"pairing.sae.source", "pairing.sae.path"},
    "labels.source": {"labels.labeler"},
    "labels.judge": {"labels.labeler", "labels.scorer"},
}


class Recorder:
    """Stands for a settings record and notes the dotted names that are read from it."""

    def __init__(self, record: Any, name: str, read: set[str]) -> None:
        self._record, self._name, self._read = record, name, read

    def __getattr__(self, field: str) -> Any:
        value = getattr(self._record, field)
        return _recorded(value, f"{self._name}.{field}".lstrip("."), self._read)


def _recorded(value: Any, name: str, read: set[str]) -> Any:
    if is_dataclass(value):
        return Recorder(value, name, read)
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return tuple(_recorded(item, f"{name}.*", read) for item in value)
    read.add(name)
    return value


def read_by(job: Callable[..., object], settled: settings.Settings, **arguments: Any) -> set[str]:
    """The dotted names that a stage reads while it runs."""
    read: set[str] = set()
    job(Recorder(settled, "", read), **arguments)
    return set().union(*(PROPERTIES.get(name, {name}) for name in read)) - FREE


@pytest.fixture
def service() -> Iterator[FakeCompletions]:
    with FakeCompletions(lambda body: '{"pattern": "x", "label": "anything", "confidence": "low"}') as served:
        yield served


@pytest.fixture
def settled(
    finished: Checkout, monkeypatch: pytest.MonkeyPatch, service: FakeCompletions
) -> settings.Settings:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(finished.root / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    training = {"training.tokens": 1000, "training.width": 16, "training.steps": 2, "training.batch": 64}
    training |= {"training.held_out": 0.3, "training.k": 4}
    labels = {"labels.labeler": "openai", "labels.model": "tiny", "labels.base_url": service.url}
    labels |= {"labels.prices.input": 0, "labels.prices.output": 0}
    labels["labels.file"] = str(finished.results / "labels.json")
    return settings.load(
        "tiny", config=finished.root / "config/config.yaml", overrides={**training, **labels}
    )


def test_stages_read_the_settings_they_declare(
    finished: Checkout, settled: settings.Settings, tmp_path: Path, service: FakeCompletions
) -> None:
    made, new = finished.results, tmp_path
    merged = {name: made / f"{name}.parquet" for name in ("stats", "examples", "neighbours")}
    swept = {"corpus": made / "corpus.parquet", "samples": settled.examples.samples}
    report, labels = made / "sweep.json", made / "labels/tokens.parquet"
    in_words = new / "in_words.parquet"
    LabelSet((Label(3, "file", "in words"),)).to_parquet(in_words)
    provenance, shards = made / "sae/provenance.json", [made / "shards/0.json", made / "shards/1.json"]
    calls: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
        "documents": (build_documents, {"output": new / "documents.parquet"}),
        "chat": (build_chat, {"documents": made / "documents.parquet", "output": new / "chat.parquet"}),
        "corpus": (
            join,
            {
                "documents": made / "documents.parquet",
                "chat": made / "chat.parquet",
                "output": new / "corpus.parquet",
            },
        ),
        "sae": (fetch_sae, {"output": new / "provenance.json"}),
        "shard": (run_shard, {**swept, "sae": provenance, "output": new / "0.json", "shards": 2}),
        "examples": (
            merge,
            {
                **swept,
                "shards": shards,
                **{name: new / f"{name}.parquet" for name in ("stats", "examples", "neighbours", "pool")},
                "report": new / "sweep.json",
                "stats_json": new / "stats.json",
            },
        ),
        "logits": (make_logits, {"sae": provenance, "output": new / "logits.parquet"}),
        "label": (
            make_labels,
            {
                "examples": merged["examples"],
                "pool": made / "pool.parquet",
                "stats": merged["stats"],
                "logits": made / "logits.parquet",
                "output": new / "tokens.parquet",
            },
        ),
        "ask": (
            ask_labels,
            {
                "examples": merged["examples"],
                "stats": merged["stats"],
                "logits": made / "logits.parquet",
                "output": new / "openai.parquet",
                "states": new / "openai.states.parquet",
            },
        ),
        "own_labels": (
            take_labels,
            {
                "stats": merged["stats"],
                "output": new / "file.parquet",
                "states": new / "file.states.parquet",
            },
        ),
        "score": (
            make_scores,
            {
                "labels": [labels, in_words],
                "examples": merged["examples"],
                "pool": made / "pool.parquet",
                "neighbours": merged["neighbours"],
                "output": new / "scores.parquet",
            },
        ),
        "results": (
            publish,
            {
                **merged,
                "report": report,
                "stats_json": made / "stats.json",
                "labels": [labels],
                "scores": made / "scores.parquet",
                "logits": made / "logits.parquet",
                "labels_json": new / "labels.json",
                "output": new / "results.duckdb",
            },
        ),
        "calibration": (
            publish_calibration,
            {
                **merged,
                "report": report,
                "stats_json": made / "stats.json",
                "output": new / "calibrated.duckdb",
            },
        ),
        "report": (
            make_report,
            {
                "database": made / "results.duckdb",
                "output": new / "report.html",
                "record": new / "report/report.json",
            },
        ),
        "verify": (
            verify_pairing,
            {"corpus": made / "corpus.parquet", "sae": provenance, "output": new / "verification.json"},
        ),
        "train": (
            train_sae,
            {"corpus": made / "corpus.parquet", "output": new / "trained", "work": new / "work"},
        ),
    }
    names = Neuronpedia(MODEL, SAE)
    published = replace(settled, pairing=replace(settled.pairing, neuronpedia=names))
    imports: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
        "neuronpedia": (
            import_features,
            {name: new / f"imported_{name}" for name in ("labels", "prior", "logits", "report")},
        ),
        "neuronpedia_examples": (import_examples, {"output": new / "shown", "report": new / "shown.json"}),
    }
    assert {*calls, *imports, "calibration_shard", "calibration_merge"} == set(stages.USES)
    with FakeBucket() as bucket:
        bucket.publish("explanations", [explanation(1, "a label")])
        bucket.publish("activations", [activation(1, ["a"], [1.0])])
        published = replace(published, neuronpedia=replace(settled.neuronpedia, base_url=bucket.url))
        for stage, (job, arguments) in imports.items():
            undeclared = read_by(job, published, **arguments) - set(stages.USES[stage])
            assert not undeclared, f"{stage} reads {sorted(undeclared)}, which its rule does not declare"
    for stage, (job, arguments) in calls.items():
        undeclared = read_by(job, settled, **arguments) - set(stages.USES[stage])
        assert not undeclared, f"{stage} reads {sorted(undeclared)}, which its rule does not declare"
