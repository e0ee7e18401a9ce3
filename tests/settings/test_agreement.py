"""config.yaml, its schema, the classes, the pairings and config/README.md say the same."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from neuroscope import settings, stages
from neuroscope.sae import FORMATS
from neuroscope.sae.norms import INPUT_NORMS
from neuroscope.settings import schema as schemas
from neuroscope.settings import values

ROOT = Path(__file__).parents[2]
SCHEMA = schemas.read_yaml(ROOT / "workflow/schemas/config.schema.yaml")
PAIRING_SCHEMA = schemas.read_yaml(ROOT / "workflow/schemas/pairing.schema.yaml")
CONFIG = schemas.read_yaml(ROOT / "config/config.yaml")
PAIRINGS = sorted(path.stem for path in (ROOT / "config/pairings").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    monkeypatch.delenv("NEUROSCOPE_CONFIG", raising=False)
    monkeypatch.chdir(ROOT)


def leaves(schema: dict[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Dotted key -> its schema, sections left out."""
    found: dict[str, dict[str, Any]] = {}
    for name, child in schema["properties"].items():
        found |= leaves(child, f"{prefix}{name}.") if "properties" in child else {f"{prefix}{name}": child}
    return found


def test_every_object_of_the_schemas_is_closed_and_every_key_described() -> None:
    def visit(schema: dict[str, Any], key: str) -> None:
        assert schema.get("description"), f"{key} has no description"
        if "object" in schema.get("type", ()) and key != "pairing.defaults":
            assert schema.get("additionalProperties") is False, f"{key} is open"
        for name, child in schema.get("properties", {}).items():
            assert "type" in child, f"{key}.{name} has no type"
            visit(child, f"{key}.{name}")

    visit(SCHEMA, "config")
    visit(SCHEMA["$defs"]["corpus_source"], "corpus_source")
    visit(PAIRING_SCHEMA, "pairing")


def test_every_number_and_free_text_has_a_range_or_pattern() -> None:
    limits = {"minimum", "exclusiveMinimum", "enum", "pattern", "minLength", "items"}
    free = [
        key
        for key, schema in (leaves(SCHEMA) | leaves(PAIRING_SCHEMA)).items()
        if schema["type"] not in ("boolean", "object") and not limits & set(schema)
    ]
    assert free == []


def test_the_configuration_holds_every_key_and_no_other() -> None:
    assert set(leaves(SCHEMA)) == set(flat(CONFIG))


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def test_values_of_the_configuration_are_the_built_in_ones_or_null() -> None:
    built_in = flat(schemas.defaults(SCHEMA))
    different = {
        key: value for key, value in flat(CONFIG).items() if value is not None and value != built_in[key]
    }
    assert different == {}


def test_null_is_accepted_exactly_where_the_configuration_has_it() -> None:
    nullable = {key for key, schema in leaves(SCHEMA).items() if "null" in schema["type"]}
    assert nullable == {key for key, value in flat(CONFIG).items() if value is None}


def test_the_schemas_accept_every_input_norm_there_is() -> None:
    for schema in (SCHEMA, PAIRING_SCHEMA):
        assert leaves(schema)["sae.input_norm"]["enum"] == [*INPUT_NORMS, None]


@pytest.mark.parametrize("name", PAIRINGS)
def test_every_pairing_is_of_a_known_format(name: str) -> None:
    assert settings.load_pairing(name).sae.format in FORMATS


@pytest.mark.parametrize("name", PAIRINGS)
def test_every_pairing_settles_every_value(name: str) -> None:
    found = settings.load(name)
    assert found.pairing.name == name
    may_be_open = {"path", "stats", "input_norm", "neuronpedia", "published", "chat", "max_documents"}
    of_labels = {"model", "base_url", "file", "input", "output", "scorer", "windows_per_call"}
    open_values = [key for key, value in walk(found) if value is None and key not in may_be_open | of_labels]
    assert open_values == []
    assert found.pairing.model
    assert settings.load_pairing(name) == found.pairing


def walk(record: Any) -> list[tuple[str, Any]]:
    found = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            found += walk(value)
        else:
            found.append((field.name, value))
    return found


@pytest.mark.parametrize(
    ("section", "record"),
    [
        ("calibration", values.Calibration),
        ("examples", values.Examples),
        ("sweep", values.Sweep),
        ("training", values.Training),
        ("labels", values.Labels),
        ("neuronpedia", values.Publication),
        ("labels.prices", values.Prices),
        ("ranking", values.RankingDefaults),
        ("serve", values.Serve),
        ("corpus", values.Corpus),
        ("corpus.chat", values.ChatCorpus),
        ("sae", values.SaeSource),
    ],
)
def test_a_section_and_its_class_have_the_same_fields(section: str, record: type) -> None:
    properties = SCHEMA
    for part in section.split("."):
        properties = properties["properties"][part]
    assert set(properties["properties"]) == {field.name for field in dataclasses.fields(record)}


def readme_rows() -> list[tuple[list[str], str]]:
    """The settings of each row of the README's table, and what they re-run."""
    table = (ROOT / "config/README.md").read_text(encoding="utf-8").split("## What re-runs")[1]
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| `")]
    return [(re.findall(r"`([^`]+)`", row[1]), row[3]) for row in rows]


def test_the_readme_lists_every_setting_once_and_no_other() -> None:
    listed = [key for keys, _ in readme_rows() for key in keys]
    assert sorted(listed) == sorted(leaves(SCHEMA))


@pytest.mark.parametrize("stage", sorted(stages.USES))
def test_the_readme_names_a_stage_with_every_setting_it_reads(stage: str) -> None:
    shown_as = {"shard": "sweep", "examples": "sweep", "calibration": "results"}
    name = "sweep" if stage.startswith("calibration_") else shown_as.get(stage, stage)
    reruns = {key: text for keys, text in readme_rows() for key in keys}
    for used in stages.USES[stage]:
        key = used.removeprefix("pairing.").partition(".*")[0]
        if key in reruns:
            assert re.search(rf"\b{name}\b|everything", reruns[key]), f"{key} re-runs {name}"
