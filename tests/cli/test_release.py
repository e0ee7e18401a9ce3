"""`sae list --remote`: a release's SAEs by the names of its files, in the layouts of the field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.hub import COMMIT
from fakes.hub_machine import IMPATIENT, Machine, unused_port

from neuroscope.cli.release import Autoencoder, autoencoders

SCOPE_2 = "resid_post/layer_12_width_16k_l0_medium/"
TREES = {
    "gemma_scope": (
        "google/gemma-scope-2b-pt-res",
        {
            "README.md": 9,
            "layer_20/width_16k/average_l0_71/params.npz": 302,
            "layer_20/width_16k/README.md": 9,
        },
        Autoencoder("layer_20/width_16k/average_l0_71/params.npz", 20, 16384, 71, 302),
    ),
    "gemma_scope_2": (
        "google/gemma-scope-2-270m-it",
        {f"{SCOPE_2}config.json": 1, f"{SCOPE_2}params.safetensors": 84},
        Autoencoder(SCOPE_2, 12, 16384, "medium", 85),
    ),
    "sae_lens": (
        "org/saes",
        {"blocks.10.hook_resid_post/cfg.json": 1, "blocks.10.hook_resid_post/sae_weights.safetensors": 10},
        Autoencoder("blocks.10.hook_resid_post/", 10, None, None, 11),
    ),
    "sparsify": (
        "EleutherAI/sae-llama-3-8b-32x",
        {"config.json": 5, "layers.10/cfg.json": 1, "layers.10/sae.safetensors": 10},
        Autoencoder("layers.10/", 10, None, None, 11),
    ),
    "dictionary_learning": (
        "org/dictionaries",
        {"resid_post_layer_12/trainer_0/ae.pt": 10, "resid_post_layer_12/trainer_0/config.json": 2},
        Autoencoder("resid_post_layer_12/trainer_0/", 12, None, None, 12),
    ),
    "llama_scope": (
        "fnlp/Llama3_1-8B-Base-LXR-8x",
        {
            "Llama3_1-8B-Base-L15R-8x/hyperparams.json": 3,
            "Llama3_1-8B-Base-L15R-8x/checkpoints/final.safetensors": 30,
        },
        Autoencoder("Llama3_1-8B-Base-L15R-8x/", 15, 32768, None, 33),
    ),
    "qwen_scope": (
        "Qwen/SAE-Res-Qwen3-8B-Base-W64K-L0_50",
        {"README.md": 9, "layer7.sae.pt": 70},
        Autoencoder("layer7.sae.pt", 7, 65536, 50, 70),
    ),
    "goodfire": (
        "Goodfire/Llama-3.1-8B-Instruct-SAE-l19",
        {"README.md": 9, "Llama-3.1-8B-Instruct-SAE-l19.pth": 70},
        Autoencoder("Llama-3.1-8B-Instruct-SAE-l19.pth", None, None, None, 70),
    ),
}


@pytest.mark.parametrize("layout", TREES)
def test_the_layouts_of_the_field_are_read(layout: str) -> None:
    repository, sizes, expected = TREES[layout]
    assert autoencoders(sizes, repository) == [expected]


def test_an_sae_at_the_top_of_a_repository_is_its_file() -> None:
    sizes = {"cfg.json": 1, "sae_weights.safetensors": 5}
    assert [row.path for row in autoencoders(sizes, "org/sae")] == ["sae_weights.safetensors"]


def test_an_unknown_layout_is_listed_file_by_file() -> None:
    rows = autoencoders({"b.bin": 2, "a/weights.xyz": 1}, "org/other")
    assert rows == [
        Autoencoder("a/weights.xyz", None, None, None, 1),
        Autoencoder("b.bin", None, None, None, 2),
    ]


def test_rows_are_in_order_of_layer_width_and_l0_as_numbers() -> None:
    names = [(9, "16k", 100), (20, "16k", 71), (9, "131k", 5), (9, "16k", 22)]
    sizes = {f"layer_{layer}/width_{width}/average_l0_{l0}/params.npz": 1 for layer, width, l0 in names}
    assert [(row.layer, row.width, row.l0) for row in autoencoders(sizes, "org/sae")] == [
        (9, 16384, 22),
        (9, 16384, 100),
        (9, 131072, 5),
        (20, 16384, 71),
    ]


def remote(machine: Machine, *words: str, **environment: str) -> list[dict[str, Any]]:
    done = machine.neuroscope("sae", "list", "--remote", *words, "--json", **environment)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert isinstance(rows, list)
    return rows


def refusal(machine: Machine, *words: str, **environment: str) -> str:
    done = machine.neuroscope("sae", "list", "--remote", *words, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("words", [["gemma-2-2b-it"], [], ["google/gemma-scope-2b-pt-res"]])
def test_a_release_is_listed_with_one_question_and_no_weights(machine: Machine, words: list[str]) -> None:
    rows = remote(machine, *words)
    assert [(row["layer"], row["width"], row["l0"]) for row in rows] == [
        (9, 16384, 73),
        (20, 16384, 71),
        (20, 16384, 139),
        (20, 65536, 61),
    ]
    assert {row["size"] for row in rows} == {102_400}
    assert rows[1]["path"] == "layer_20/width_16k/average_l0_71/params.npz"
    (request,) = machine.hub.requests
    assert request.path.startswith("/api/models/google/gemma-scope-2b-pt-res/tree/")


def test_the_terminal_has_units(machine: Machine) -> None:
    header, first, *_ = machine.neuroscope("sae", "list", "--remote", "gemma-2-2b-it").stdout.splitlines()
    assert header.split() == ["path", "layer", "width", "l0", "size"]
    assert first.split()[1:] == ["9", "16384", "73", "102", "kB"]


def test_layer_and_width_choose(machine: Machine) -> None:
    assert [row["l0"] for row in remote(machine, "gemma-2-2b-it", "--layer", "20", "--width", "16k")] == [
        71,
        139,
    ]
    assert [row["l0"] for row in remote(machine, "gemma-2-2b-it", "--width", "65536")] == [61]


def test_what_is_not_there_names_what_is(machine: Machine) -> None:
    error = refusal(machine, "gemma-2-2b-it", "--layer", "3")
    assert "there is no SAE of layer 3. Layers: 9, 20; widths: 16384, 65536." in error


def test_a_width_that_is_no_number_is_refused(machine: Machine) -> None:
    assert "--width is 'wide', must be a number of features" in refusal(machine, "--width", "wide")


def test_a_revision_is_the_one_listed(machine: Machine) -> None:
    machine.hub.add(
        "google/gemma-scope-2b-pt-res", {"layer_1/width_16k/average_l0_5/params.npz": b"x"}, commit="2" * 40
    )
    assert [row["layer"] for row in remote(machine, "google/gemma-scope-2b-pt-res")] == [1]
    assert len(remote(machine, f"google/gemma-scope-2b-pt-res@{COMMIT}")) == 4
    error = refusal(machine, "google/gemma-scope-2b-pt-res@v9")
    assert "the repository has no revision 'v9'" in error


def test_a_missing_repository_is_said_to_be_missing(machine: Machine) -> None:
    assert "there is no repository 'org/nothing' on the hub" in refusal(machine, "org/nothing")


def test_a_gated_listing_names_licence_and_token(machine: Machine) -> None:
    machine.hub.add("org/gated", {"layer0.sae.pt": b"x"}, gated=True, listed=False, token="hf_right")
    error = refusal(machine, "org/gated")
    assert "https://huggingface.co/org/gated" in error
    assert "HF_TOKEN" in error
    assert len(remote(machine, "org/gated", HF_TOKEN="hf_right")) == 1


def test_offline_says_that_only_the_hub_knows(machine: Machine) -> None:
    error = refusal(machine, "gemma-2-2b-it", HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE forbids to ask it" in error
    assert "without --remote" in error
    assert machine.hub.requests == []


def test_no_network_says_so(machine: Machine) -> None:
    endpoint = f"http://127.0.0.1:{unused_port()}"
    error = refusal(machine, "gemma-2-2b-it", prelude=IMPATIENT, HF_ENDPOINT=endpoint)
    assert f"the hub at {endpoint} cannot be reached" in error


def test_a_login_page_is_no_listing(machine: Machine) -> None:
    machine.hub.page = b"<html>Welcome to the hotel</html>"
    assert "answers, but not as a model hub" in refusal(machine, "gemma-2-2b-it")


def test_the_embedded_pairing_has_no_release(machine: Machine) -> None:
    error = refusal(machine, "smollm2-135m")
    assert "not a release on the hub" in error


def test_an_unknown_pairing_is_named(machine: Machine) -> None:
    assert "Did you mean gemma-2-2b-it?" in refusal(machine, "gemma-2-2bit")


def test_the_filters_are_the_releases(machine: Machine) -> None:
    done = machine.neuroscope("sae", "list", "--layer", "3")
    assert done.returncode == 2
    assert "--layer and --width go with --remote" in done.stderr
