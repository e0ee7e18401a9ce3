"""Every pairing of config/pairings: well-formed, in step with itself, with the schemas and with the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neuroscope import settings
from neuroscope.sae import FORMATS
from neuroscope.settings import Pairing, layout
from neuroscope.settings import schema as schemas
from neuroscope.sources import Source, parse

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "config/pairings").glob("*.yaml"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAIRING_SCHEMA = schemas.read_yaml(ROOT / "workflow/schemas/pairing.schema.yaml")["properties"]
CONFIG_SCHEMA = schemas.read_yaml(ROOT / "workflow/schemas/config.schema.yaml")["properties"]
ACCEPTED = PAIRING_SCHEMA["sae"]["properties"]["format"]["enum"]
LAYERS = {
    "gemma-2-2b": 26,
    "gemma-2-9b": 42,
    "gemma-3-270m": 18,
    "gemma-3-1b": 26,
    "gemma-3-4b": 34,
    "llama-3.1-8b": 32,
    "smollm2-135m": 30,
}
"""Decoder layers of each model, from its config.json."""
BY_FORMAT = {"gemma_scope": r".*\.npz", "gemma_scope_2": r".*/", "goodfire": r".*\.pth"}
"""What the path of an SAE ends in."""


@pytest.fixture(params=NAMES)
def pairing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Pairing:
    monkeypatch.delenv("NEUROSCOPE_CONFIG", raising=False)
    monkeypatch.chdir(ROOT)
    return settings.load_pairing(request.param)


def hub_sources(pairing: Pairing) -> list[Source]:
    found = [parse(pairing.model), parse(pairing.sae.uri)]
    corpus = settings.load(pairing.name).corpus
    return [
        source for source in (*found, *(parse(each.source) for each in corpus.sources)) if source.kind == "hf"
    ]


def depth(pairing: Pairing) -> int:
    """Decoder layers of the pairing's model; the longest known name that begins the pairing's counts."""
    return LAYERS[max((name for name in LAYERS if pairing.name.startswith(name)), key=len)]


def test_the_schemas_know_every_format_there_is_and_the_same_ones() -> None:
    assert set(FORMATS) <= set(ACCEPTED)
    assert CONFIG_SCHEMA["sae"]["properties"]["format"]["enum"] == [*ACCEPTED, None]


def test_a_format_is_known_and_fits_the_path(pairing: Pairing) -> None:
    assert pairing.sae.format in ACCEPTED
    path = pairing.sae.path or parse(pairing.sae.source).name
    assert re.fullmatch(BY_FORMAT[pairing.sae.format], path)


def test_a_models_source_is_a_whole_repository_and_an_saes_is_not(pairing: Pairing) -> None:
    model, sae = parse(pairing.model), parse(pairing.sae.uri)
    assert model.kind != "hf" or model.path is None
    assert sae.kind != "hf" or sae.path == pairing.sae.path


def test_a_revision_is_a_commit_or_left_to_the_lock(pairing: Pairing) -> None:
    for source in hub_sources(pairing):
        assert source.revision is None or re.fullmatch("[0-9a-f]{40}", source.revision), source.uri
    if hub_sources(pairing):
        text = (ROOT / f"config/pairings/{pairing.name}.yaml").read_text(encoding="utf-8")
        assert f"results/{pairing.name}/sources.lock.json" in text.partition("description:")[0]


def test_layer_and_width_are_those_of_the_path_and_fit_the_model(pairing: Pairing) -> None:
    path = pairing.sae.path or ""
    assert layout.layer_in(path) in (None, pairing.layer)
    assert layout.width_in(path) in (None, pairing.sae.width)
    assert pairing.layer < depth(pairing)
    assert f"layer {pairing.layer} of {depth(pairing)}" in pairing.description
    assert pairing.sae.width & (pairing.sae.width - 1) == 0, "releases have powers of two"


def test_the_published_l0_is_there_and_is_the_paths(pairing: Pairing) -> None:
    assert pairing.published is not None
    assert pairing.published.l0 is not None
    assert 1 < pairing.published.l0 < pairing.sae.width / 10
    stated = layout.l0_in(pairing.sae.path or "")
    assert not isinstance(stated, int) or stated == pairing.published.l0


def test_neuronpedias_names_have_its_shape_and_name_the_layer(pairing: Pairing) -> None:
    if pairing.neuronpedia is None:
        assert not hub_sources(pairing)[:2], "a published SAE has its labels there"
        return
    assert re.fullmatch(r"[a-z0-9.-]+", pairing.neuronpedia.model_id)
    layer, _, release = pairing.neuronpedia.sae_id.partition("-")
    assert int(layer) == pairing.layer
    assert re.fullmatch(r"(gemmascope-(2-)?res-16k|resid-post-gf)", release)


def test_the_licence_says_what_and_where(pairing: Pairing) -> None:
    assert pairing.licence.strip()
    model = parse(pairing.model)
    if model.kind == "hf":
        assert f"https://huggingface.co/{model.name}" in pairing.licence


def test_the_numbers_type_is_known(pairing: Pairing) -> None:
    assert pairing.dtype in PAIRING_SCHEMA["dtype"]["enum"]


def test_a_model_without_a_chat_template_is_not_asked_for_conversations() -> None:
    assert settings.load("gemma-2-2b").corpus.chat is None
    assert settings.load("gemma-2-2b-it").corpus.chat is not None


def test_the_readmes_table_has_every_pairing_once_with_its_layer_and_width() -> None:
    table = README.partition("| pairing | model | SAE | needs |")[2].partition("\n\n")[0]
    rows = {row.split("`")[1]: row for row in table.splitlines() if row.startswith("| `")}
    assert sorted(rows) == NAMES
    for name, row in rows.items():
        found = settings.load_pairing(name)
        assert f"layer {found.layer} of {depth(found)}, {found.sae.width:,} features" in row
        assert ("`HF_TOKEN`" in row) == bool(hub_sources(found)), name
        assert ("(default)" in row) == (settings.load().pairing.name == name)
