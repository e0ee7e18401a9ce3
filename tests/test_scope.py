"""The public names: a pairing from its YAML file to named features, on a tiny model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fakes.tiny import D_SAE, TINY_LAYER

import neuroscope
from neuroscope import settings as neuroscope_settings
from neuroscope.engine import Engine, Sampling
from neuroscope.errors import ArtefactError, ConfigError, SAEFormatError
from neuroscope.identity import fingerprint_of
from neuroscope.known import Known
from neuroscope.models.loading import load_tokenizer
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.ranking import Ranking
from neuroscope.sae import load_sae
from neuroscope.scope import Scope
from neuroscope.sources import folder_sha256, resolve
from neuroscope.stages.sae import fetch_sae
from neuroscope.stats import CalibrationStats

ROOT = Path(__file__).parents[1]
HELLO = [{"role": "user", "content": "hello"}]
ALWAYS_ON = 3


@pytest.fixture
def home(tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose default pairing is the tiny Gemma 2 with the tiny SAE."""
    shutil.copytree(ROOT / "workflow/schemas", tmp_path / "workflow/schemas")
    (tmp_path / "config/pairings").mkdir(parents=True)
    pairing = {
        "description": "A tiny random Gemma 2 with a tiny random SAE.",
        "model": str(tiny_gemma_path),
        "layer": TINY_LAYER,
        "dtype": "float32",
        "licence": "Apache-2.0",
        "sae": {
            "source": str(tiny_sae_path),
            "path": None,
            "format": "gemma_scope",
            "input_norm": None,
            "width": D_SAE,
        },
        "neuronpedia": None,
        "published": None,
    }
    (tmp_path / "config/pairings/tiny.yaml").write_text(yaml.safe_dump(pairing))
    (tmp_path / "config/config.yaml").write_text("pairing: tiny\ndevice: cpu\n")
    monkeypatch.setenv("NEUROSCOPE_CONFIG", str(tmp_path / "config/config.yaml"))
    monkeypatch.delenv("NEUROSCOPE_PAIRING", raising=False)
    return tmp_path


def test_an_sae_that_is_a_folder_is_known_by_all_its_files(home: Path, tiny_sae_path: Path) -> None:
    folder = home / "release/layer_1"
    folder.mkdir(parents=True)
    shutil.copy(tiny_sae_path, folder / "params.npz")
    (folder / "README.md").write_text("an SAE")
    given = {"sae.source": str(home / "release"), "sae.path": "layer_1/"}
    fetch_sae(neuroscope_settings.load(overrides=given), output=home / "provenance.json")
    provenance = json.loads((home / "provenance.json").read_text())
    assert provenance["path"] == str(folder)
    assert provenance["sha256"] == folder_sha256(folder)
    scope = neuroscope.load(overrides=given)
    assert scope.encode("hello")


def statistics() -> CalibrationStats:
    """1,000 tokens on which feature 3 always fires and the others on a tenth, at 2 +- 1."""
    n_fired = np.full(D_SAE, 100)
    n_fired[ALWAYS_ON] = 1000
    return CalibrationStats.from_sums(1000, n_fired, n_fired * 2.0, n_fired * 5.0, np.full(D_SAE, 9.0))


def write_stats(home: Path, *, layer: int = TINY_LAYER) -> Path:
    """stats.json of the tiny pairing, or of the same at another layer."""
    settings = neuroscope_settings.load()
    source = resolve(settings.pairing.model)
    fingerprint = fingerprint_of(
        settings.pairing,
        model=source,
        tokenizer=load_tokenizer(source.path),
        sae=load_sae(settings.pairing.sae.uri, device="cpu"),
        sae_file=Path(settings.pairing.sae.uri),
    )
    path = home / "stats.json"
    statistics().to_json(path, sae_id="tiny", fingerprint={**fingerprint.to_dict(), "layer": layer})
    return path


def test_load_gives_what_the_pairing_file_says(home: Path) -> None:
    scope = neuroscope.load()
    assert scope.settings.pairing.name == "tiny"
    assert scope.engine.backend.layer == TINY_LAYER
    assert scope.engine.sae.d_sae == D_SAE
    assert scope.ranking == Ranking(filter="frequency", threshold=0.5, top_k=10)
    assert scope.engine.prefix.capacity == 512_000_000


def test_a_notebook_bounds_or_turns_off_what_is_kept_of_prompts(home: Path) -> None:
    scope = neuroscope.load(overrides={"serve.prefix_cache_mb": 0})
    found = []
    for _ in range(2):
        found.append(scope.encode("the user said hello " * 20))
        assert scope.engine.reused_tokens == 0
    assert found[0] == found[1]
    assert scope.engine.prefix.used == 0


def test_missing_results_are_said_with_the_command_that_makes_them(home: Path) -> None:
    scope = neuroscope.load("tiny")
    assert scope.known.stats is None
    assert scope.known.labels[:2] == ("feature_0", "feature_1")
    assert len(scope.known.degraded) == 2
    assert all("NEUROSCOPE_PAIRING=tiny snakemake --cores 4 labels" in line for line in scope.known.degraded)
    assert scope.encode("hello")[1].features[0].surprise is None


def test_statistics_of_this_pairing_filter_and_score(home: Path) -> None:
    stats = write_stats(home)
    scope = neuroscope.load(overrides={"ranking.stats": str(stats), "ranking.top_k": D_SAE})
    tokens = scope.encode("the user said hello")
    plain = scope.encode("the user said hello", ranking=Ranking(filter="none", top_k=D_SAE))
    always_on = [ALWAYS_ON in {feature.index for feature in token.features} for token in plain]
    assert any(always_on)
    assert [token.filtered_count for token in tokens] == list(map(int, always_on))
    for token in tokens:
        assert all(feature.index != ALWAYS_ON for feature in token.features)
        assert len(token.features) + token.filtered_count == token.l0
        for feature in token.features:
            assert feature.surprise == pytest.approx(feature.activation - 2.0, rel=1e-4)


def test_statistics_of_another_layer_are_refused_by_name(home: Path) -> None:
    stats = write_stats(home, layer=2)
    with pytest.raises(ArtefactError, match="layer: made with 2, in use is 1"):
        neuroscope.load(overrides={"ranking.stats": str(stats)})


def test_an_sae_of_another_width_is_refused_with_both_numbers(home: Path, tiny_sae_path: Path) -> None:
    said = rf"has {D_SAE} features, sae.width says 16384\. .* \(--sae-width\) to {D_SAE}\."
    with pytest.raises(SAEFormatError, match=said):
        neuroscope.load(overrides={"sae.source": str(tiny_sae_path), "sae.width": "16k"})


def test_an_sae_whose_width_nobody_said_is_taken_as_it_is(home: Path, tiny_sae_path: Path) -> None:
    shutil.copy(tiny_sae_path, home / "mine.npz")
    scope = neuroscope.load(overrides={"sae.source": str(home / "mine.npz")})
    assert (scope.settings.pairing.sae.width, scope.engine.sae.d_sae) == (None, D_SAE)


def test_an_unknown_pairing_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="tiny"):
        neuroscope.load("tinny")


@pytest.fixture
def scope(home: Path, tiny_engine: Engine) -> Scope:
    labels = tuple(f"label {index}" for index in range(D_SAE))
    known = Known(None, statistics(), labels, {"test": D_SAE}, None, ())
    return Scope(neuroscope_settings.load(), tiny_engine, known, Ranking())


def test_generate_gives_the_engine_s_tokens_with_named_features(scope: Scope) -> None:
    tokens = list(scope.generate(HELLO, max_tokens=5, temperature=0))
    steps = list(scope.engine.generate(scope.engine.prepare(HELLO), Sampling(max_tokens=5, temperature=0)))
    assert [token.token for token in tokens] == [step.text for step in steps]
    assert [token.position for token in tokens] == [step.position for step in steps]
    assert [token.l0 for token in tokens] == [step.acts.l0 for step in steps]
    assert tokens[-1].finish_reason in ("length", "stop")
    for token, step in zip(tokens, steps, strict=True):
        strongest = dict(zip(step.acts.indices.tolist(), step.acts.values.tolist(), strict=True))
        for feature in token.features:
            assert feature.activation == strongest[feature.index]
            assert feature.label == f"label {feature.index}"
        activations = [feature.activation for feature in token.features]
        assert activations == sorted(activations, reverse=True)


def test_encode_reads_a_conversation_without_asking_for_an_answer(scope: Scope) -> None:
    tokens = scope.encode([*HELLO, {"role": "assistant", "content": "the same"}])
    assert "".join(token.token for token in tokens if token.content) == "hellothe same"
    assert "".join(token.token for token in tokens).endswith("the same<end_of_turn>\n")


def test_the_model_s_own_end_tokens_end_an_answer(home: Path, tiny_gemma: tuple[Any, Any]) -> None:
    model, tokenizer = tiny_gemma
    assert TorchBackend(model, tokenizer, TINY_LAYER).end_ids == {tokenizer.eos_token_id}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, neuroscope; assert not {'torch', 'transformers', 'polars'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_names_are_few() -> None:
    assert dir(neuroscope) == ["__version__", "load", "load_sae"]
    assert neuroscope.__version__.count(".") >= 2
    assert neuroscope.load_sae is load_sae
    with pytest.raises(AttributeError, match="'neuroscope' has no attribute 'save'"):
        neuroscope.save  # noqa: B018
