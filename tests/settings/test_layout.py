"""What the paths of known releases say, and how one is moved to another layer or width."""

from __future__ import annotations

import pytest

from neuroscope.settings.layout import at_layer, at_width, l0_in, layer_in, width_in

LAYOUTS = [
    ("layer_20/width_16k/average_l0_71/params.npz", 20, 16384, 71),
    ("layer_9/width_131k/canonical/params.npz", 9, 131072, None),
    ("resid_post/layer_12_width_16k_l0_medium/", 12, 16384, "medium"),
    ("transcoder/layer_12_width_262k_l0_small_affine/", 12, 262144, "small"),
    ("layers.10/", 10, None, None),
    ("layers.10.mlp/", 10, None, None),
    ("blocks.10.hook_resid_post/", 10, None, None),
    ("layer27.sae.pt", 27, None, None),
    ("Llama3_1-8B-Base-L15R-8x/", 15, 32768, None),
    ("Llama3_1-8B-Base-L7TC-32x/", 7, 131072, None),
    ("Llama-3.1-8B-Instruct-SAE-l19.pth", None, None, None),
    ("params.npz", None, None, None),
]


@pytest.mark.parametrize(("path", "layer", "width", "l0"), LAYOUTS)
def test_a_path_says_layer_width_and_l0(
    path: str, layer: int | None, width: int | None, l0: int | str | None
) -> None:
    assert (layer_in(path), width_in(path), l0_in(path)) == (layer, width, l0)


def test_qwen_scope_states_width_and_l0_in_the_repositorys_name() -> None:
    name = "Qwen/SAE-Res-Qwen3.5-27B-W80K-L0_50"
    assert (layer_in("layer3.sae.pt"), width_in("layer3.sae.pt", name), l0_in("layer3.sae.pt", name)) == (
        3,
        80 * 1024,
        50,
    )


def test_the_path_counts_before_the_repositorys_name() -> None:
    assert width_in("layer_1/width_65k/params.npz", "org/sae-W32K-L0_9") == 65536
    assert l0_in("layer_1/average_l0_7/params.npz", "org/sae-W32K-L0_9") == 7


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("layer_20/width_16k/average_l0_71/params.npz", "layer_3/width_16k/average_l0_71/params.npz"),
        ("resid_post/layer_12_width_16k_l0_medium/", "resid_post/layer_3_width_16k_l0_medium/"),
        ("layers.10/", "layers.3/"),
        ("blocks.10.hook_resid_post/", "blocks.3.hook_resid_post/"),
        ("layer27.sae.pt", "layer3.sae.pt"),
        ("Llama3_1-8B-Base-L15R-8x/", "Llama3_1-8B-Base-L3R-8x/"),
        ("params.npz", None),
    ],
)
def test_a_path_moves_to_another_layer(path: str, moved: str | None) -> None:
    assert at_layer(path, 3) == moved


@pytest.mark.parametrize(
    ("width", "written"), [(4096, "4k"), (65536, "65k"), (262144, "262k"), (1 << 20, "1m"), (1 << 21, "2m")]
)
def test_a_path_moves_to_another_width_as_releases_write_it(width: int, written: str) -> None:
    assert at_width("layer_1/width_16k/x.npz", width) == f"layer_1/width_{written}/x.npz"
    assert at_width("layer_1_width_16k_l0_big/", width) == f"layer_1_width_{written}_l0_big/"
    assert at_width("layers.10/", width) is None
