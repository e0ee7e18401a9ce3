"""What a model and an SAE are called on the wire."""

from __future__ import annotations

from neuroscope import settings
from neuroscope.server.loading import sae_name


def test_an_sae_is_called_by_its_folder_without_path_file_or_hash() -> None:
    assert sae_name(settings.load_pairing("smollm2-135m")) == "smollm2-135m-layer20-4k"
    assert (
        sae_name(settings.load_pairing("gemma-2-2b-it"))
        == "google/gemma-scope-2b-pt-res/layer_20/width_16k/average_l0_71"
    )
