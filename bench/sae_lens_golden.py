"""Records what SAELens makes of the miniature releases, for tests/sae/test_sae_lens.py, which needs no SAELens.

SAELens brings some fifty packages along, too many for every `make test`. To record anew, in an environment of its own:

    pip install -c constraints.txt -e .[dev,parity]
    python bench/sae_lens_golden.py

Its loaders of other releases fetch from the hub; here they are handed the files of tests/fakes/releases.py instead.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sae_lens
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fakes import published, releases
from sae_lens.loading import pretrained_sae_loaders as loaders

RECORDED = Path(__file__).parents[1] / "tests/sae/sae_lens.npz"
D_IN, D_SAE, TOKENS = 8, 24, 6
SIZES = {"d_in": D_IN, "d_sae": D_SAE}
LLAMA = "Llama-3.1-8B-Instruct-SAE-l19"
HUB: dict[str, tuple[Callable[..., Any], str, str, dict[str, Any]]] = {
    "gemma_scope": (
        loaders.gemma_2_sae_huggingface_loader,
        "google/gemma-scope-2b-pt-res",
        "layer_1/width_1k/average_l0_9",
        SIZES,
    ),
    "gemma_scope_2": (
        loaders.gemma_3_sae_huggingface_loader,
        "google/gemma-scope-2-270m-it",
        "resid_post/layer_5_width_1k_l0_small",
        {},
    ),
    "dictionary_learning": (loaders.dictionary_learning_sae_huggingface_loader_1, "any/any", "trainer_0", {}),
    "goodfire": (loaders.get_goodfire_huggingface_loader, f"Goodfire/{LLAMA}", f"{LLAMA}.pth", SIZES),
    "llama_scope": (
        loaders.llama_scope_sae_huggingface_loader,
        "any/any",
        "Llama3_1-8B-Base-L1R-8x",
        {"dtype": "float32"},
    ),
    "qwen_scope": (
        loaders.qwen_scope_sae_huggingface_loader,
        "Qwen/SAE-Res-Qwen3-8B-Base-W1K-L0_8",
        "layer1.sae.pt",
        SIZES,
    ),
}
"""format -> SAELens' loader of it, the repository and the path there, and what the miniature has otherwise."""
UNREAD = {"sparsify", "dictionary_learning AutoEncoderNew"}
"""SAELens transposes sparsify's W_dec, which then does not fit, and has no layout for AutoEncoderNew."""


def read(name: str, root: Path) -> sae_lens.SAE[Any]:
    """The miniature of a case as SAELens reads it."""
    case = published.CASES[name]
    if case.format == "sae_lens":
        return sae_lens.SAE.load_from_disk(case.write(root, D_IN, D_SAE, 0))
    load, repository, path, overrides = HUB[case.format]
    is_file = path.endswith((".pth", ".pt"))
    written = case.write(root if is_file else root / path, D_IN, D_SAE, 0)
    if is_file:
        written.rename(root / path)

    def local(repo_id: str, filename: str, subfolder: str = "", **_: Any) -> str:
        return str(root / subfolder / filename)

    def shapes(repo_id: str, filename: str) -> dict[str, list[int]]:
        return {tensor: list(value.shape) for tensor, value in load_file(root / filename).items()}

    loaders.hf_hub_download, loaders.get_safetensors_tensor_shapes = local, shapes
    config, state, _ = load(repository, path, device="cpu", cfg_overrides=overrides)
    config = loaders.handle_config_defaulting(config) | {"device": "cpu", "dtype": "float32"}
    config_class = sae_lens.SAE.get_sae_config_class_for_architecture(config["architecture"])
    settings = config_class.from_dict(config)
    sae = sae_lens.SAE.get_sae_class_for_architecture(settings.architecture())(settings)
    sae.load_state_dict({tensor: value.float() for tensor, value in state.items()})
    if settings.normalize_activations == "expected_average_only_in":
        sae.fold_activation_norm_scaling_factor(D_IN**0.5 / 19.375)  # as from_pretrained does, from its table
    return sae


@torch.no_grad()
def main() -> None:
    x = torch.from_numpy(releases.residuals(TOKENS, D_IN))
    recorded = {}
    for name in published.CASES:
        if name in UNREAD:
            continue
        with tempfile.TemporaryDirectory() as folder:
            sae = read(name, Path(folder))
        acts = sae.encode(x)
        recorded[f"{name}/acts"] = acts.numpy()
        recorded[f"{name}/x_hat"] = sae.decode(acts).numpy()
    np.savez_compressed(RECORDED, **recorded)
    print(f"sae-lens {sae_lens.__version__}: {len(recorded) // 2} cases")


if __name__ == "__main__":
    main()
