"""Every pairing on the hub, whole: fetched, loaded, hooked, encoded, streamed, from miniatures in the real layouts.

The fake hub serves, under the names that the pairing gives, a random model of the pairing's own family and depth and
an SAE of its own format; nothing of the pairing is overridden but the number type and what is said of the width.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import releases
from fakes.families import D_MODEL, save_family
from fakes.hub import FakeHub

from neuroscope import settings
from neuroscope.sources import parse

ROOT = Path(__file__).parents[1]
D_SAE = 96
FAMILY = {
    "gemma-2": "gemma2",
    "gemma-3-270m": "gemma3",
    "gemma-3-1b": "gemma3",
    "gemma-3-4b": "gemma3_nested",
    "llama-3.1": "llama",
}
"""The longest beginning of a pairing's name counts."""
ON_THE_HUB = [
    path.stem
    for path in sorted((ROOT / "config/pairings").glob("*.yaml"))
    if settings.load_pairing(path.stem).model.startswith("hf://")
]


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


LOAD = """
import json, sys
import neuroscope
from neuroscope.settings import load_pairing
found = {}
for name in sys.argv[3:]:
    overrides = {"dtype": "float32", "device": "cpu", "results": sys.argv[1] + "/{pairing}"}
    overrides |= {"sae.path": load_pairing(name).sae.path, "sae.width": int(sys.argv[2])}
    scope = neuroscope.load(name, overrides=overrides)
    answer = list(scope.generate("Paris is", max_tokens=3, temperature=0))
    found[name] = {
        "shape": [scope.engine.sae.d_in, scope.engine.sae.d_sae],
        "positions": [token.position for token in answer],
        "encoded": [
            {"id": t.token_id, "feature": t.features[0].index, "best": t.features[0].activation, "l0": t.l0,
             "fvu": t.fvu}
            for t in scope.encode("Paris is a city")
        ],
    }
print(json.dumps(found))
"""


def miniature(name: str, folder: Path) -> None:
    """The model of a pairing's family, as deep as its layer asks for, and an SAE of its format."""
    pairing = settings.load_pairing(name)
    family = FAMILY[max((start for start in FAMILY if name.startswith(start)), key=len)]
    save_family(family, folder / "model", layers=pairing.layer + 2)
    getattr(releases, pairing.sae.format)(folder / "sae", D_MODEL, D_SAE, 0)


@pytest.fixture(scope="module")
def miniatures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("miniatures")
    for name in ON_THE_HUB:
        miniature(name, folder / name)
    return folder


@pytest.fixture(scope="module")
def loaded(miniatures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process of its own reads off every pairing, with the hub at another address."""
    work = tmp_path_factory.mktemp("loaded")
    repositories: dict[str, dict[str, bytes]] = {}
    for name in ON_THE_HUB:
        pairing = settings.load_pairing(name)
        source = parse(pairing.sae.uri)
        assert source.path is not None
        files = files_in(miniatures / name / "sae")
        if not source.path.endswith("/"):
            (content,) = files.values()
            files = {Path(source.path).name: content}
        prefix = source.path if source.path.endswith("/") else source.path[: -len(Path(source.path).name)]
        release = {prefix + file: content for file, content in files.items()}
        repositories.setdefault(source.name, {}).update(release)
        repositories.setdefault(parse(pairing.model).name, {}).update(files_in(miniatures / name / "model"))
    with FakeHub() as hub:
        for repository, files in repositories.items():
            hub.add(repository, files)
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("NEUROSCOPE_", "HF_"))
        }
        environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(work / "home"), "HF_HUB_DISABLE_XET": "1"}
        done = subprocess.run(
            [sys.executable, "-c", LOAD, str(work / "results"), str(D_SAE), *ON_THE_HUB],
            env=environment | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ON_THE_HUB)
def test_the_whole_path_from_the_hub_to_a_feature(
    name: str, miniatures: Path, loaded: dict[str, Any]
) -> None:
    """Against the layer's own output in a plain pass, and the release's arithmetic in float64."""
    from transformers import AutoModelForCausalLM

    pairing, found = settings.load_pairing(name), loaded[name]
    assert found["shape"] == [D_MODEL, D_SAE]
    first = found["positions"][0]
    assert found["positions"] == list(range(first, first + len(found["positions"])))
    model = AutoModelForCausalLM.from_pretrained(
        miniatures / name / "model", dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        states = model(
            input_ids=torch.tensor([[token["id"] for token in found["encoded"]]]),
            use_cache=False,
            output_hidden_states=True,
        ).hidden_states
    w = {key: value.double().numpy() for key, value in releases.weights(D_MODEL, D_SAE, 0).items()}
    pre = states[pairing.layer + 1][0].double().numpy() @ w["W_enc"] + w["b_enc"]
    gate = 0 if pairing.sae.format == "goodfire" else w["threshold"]
    expected = np.where(pre > gate, np.maximum(pre, 0), 0)
    rel = 1e-2 if pairing.sae.format == "goodfire" else 1e-4  # Goodfire's weights are bfloat16
    for token, acts in zip(found["encoded"], expected, strict=True):
        assert token["best"] == pytest.approx(acts[token["feature"]], rel=rel)
        assert token["best"] >= acts.max() * (1 - rel)
        assert token["l0"] == pytest.approx(np.count_nonzero(acts), abs=2 if rel > 1e-3 else 0)
        assert token["fvu"] is not None
