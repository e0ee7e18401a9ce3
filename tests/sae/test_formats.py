"""Every release format computes what its release's own code computes, whatever was folded into the weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fakes import releases
from fakes.published import CASES
from safetensors.torch import load_file, save_file

from neuroscope.errors import SAEFormatError
from neuroscope.sae import FORMATS, load_sae
from neuroscope.sae.reading import FeatureReader

D_IN, D_SAE, TOKENS = 32, 128, 64
CONFIGS = {"sae_lens": "cfg.json", "sparsify": "cfg.json", "llama_scope": "hyperparams.json"}
TOLERANCE = 3e-6
"""Largest difference from float64, as a share of the largest value: float32 has 6e-8, summed over d_in products."""


@pytest.mark.parametrize("name", CASES)
def test_acts_and_reconstruction_are_those_of_the_releases_own_code(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = case.write(tmp_path, D_IN, D_SAE, 0)
    x = releases.residuals(TOKENS, D_IN)
    acts, x_hat = case.published(path, x.astype(np.float64))

    sae = load_sae(path, format=case.format, device="cpu")
    found = sae.encode(torch.from_numpy(x))

    assert 2 < (acts > 0).sum(1).mean() < D_SAE / 1.5, "the fake is neither dead nor dense"
    np.testing.assert_array_equal(found.numpy() > 0, acts > 0)
    np.testing.assert_allclose(found.numpy(), acts, rtol=0, atol=TOLERANCE * acts.max())
    decoded = sae.decode(found, torch.from_numpy(x))
    np.testing.assert_allclose(decoded.numpy(), x_hat, rtol=0, atol=TOLERANCE * np.abs(x_hat).max())


@pytest.mark.parametrize(
    ("name", "activation", "k"),
    [
        ("sparsify", "topk", 8),
        ("qwen_scope", "topk", 8),
        ("sae_lens topk", "topk", 8),
        ("dictionary_learning AutoEncoderTopK", "topk", 8),
        ("dictionary_learning BatchTopKSAE", "jumprelu", None),
        ("sae_lens standard", "jumprelu", None),
    ],
)
def test_the_activation_is_named(name: str, activation: str, k: int | None, tmp_path: Path) -> None:
    case = CASES[name]
    sae = load_sae(case.write(tmp_path, D_IN, D_SAE, 0), format=case.format, device="cpu")
    assert (sae.activation, sae.k) == (activation, k)


@pytest.mark.parametrize("name", CASES)
def test_fvu_compares_in_the_raw_residuals_space(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = case.write(tmp_path, D_IN, D_SAE, 0)
    x = releases.residuals(8, D_IN)
    _, x_hat = case.published(path, x.astype(np.float64))
    expected = ((x - x_hat) ** 2).sum(1) / (x**2).sum(1)

    readings = FeatureReader(load_sae(path, format=case.format, device="cpu")).read(torch.from_numpy(x))

    np.testing.assert_allclose([reading.fvu for reading in readings], expected, rtol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_the_encoder_alone_encodes_the_same(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = case.write(tmp_path, D_IN, D_SAE, 1)
    x = torch.from_numpy(releases.residuals(4, D_IN))
    whole = load_sae(path, format=case.format, device="cpu")
    encoder = load_sae(path, format=case.format, device="cpu", decoder=False)
    assert encoder.W_dec is encoder.b_dec is None
    assert torch.equal(encoder.encode(x), whole.encode(x))


def test_every_format_has_a_case() -> None:
    assert {case.format for case in CASES.values()} == set(FORMATS)


@pytest.mark.parametrize(
    "name", ["sae_lens jumprelu", "sparsify", "dictionary_learning BatchTopKSAE", "llama_scope"]
)
def test_the_file_of_weights_stands_for_its_folder(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    folder = case.write(tmp_path, D_IN, D_SAE, 0)
    files = [file for file in folder.rglob("*") if file.suffix in (".safetensors", ".pt")]
    x = torch.from_numpy(releases.residuals(4, D_IN))
    by_file, by_folder = (load_sae(path, format=case.format, device="cpu") for path in (files[0], folder))
    assert torch.equal(by_file.encode(x), by_folder.encode(x))


# Weights a reader can follow: d_in 2, d_sae 2.
EYE = torch.eye(2)


def test_a_subtracted_b_dec_is_folded_into_b_enc(tmp_path: Path) -> None:
    releases.sparsify(tmp_path, 2, 2, 0, k=1)
    save_file(
        {
            "encoder.weight": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
            "encoder.bias": torch.tensor([0.5, 0.0]),
            "W_dec": EYE,
            "b_dec": torch.tensor([1.0, 3.0]),
        },
        tmp_path / "sae.safetensors",
    )
    sae = load_sae(tmp_path, format="sparsify", device="cpu")
    # b_enc = [0.5, 0] - [1, 3] @ diag(1, 2)
    assert sae.b_enc.tolist() == [-0.5, -6.0]
    # pre of [4, 5]: [3.5, 4], of which the larger is kept
    assert sae.encode(torch.tensor([4.0, 5.0])).tolist() == [0.0, 4.0]
    assert (sae.activation, sae.k) == ("topk", 1)


def test_a_gate_becomes_a_threshold(tmp_path: Path) -> None:
    releases.sae_lens(tmp_path, 2, 2, 0, architecture="gated", apply_b_dec_to_input=False)
    save_file(
        {
            "W_enc": EYE,
            "W_dec": EYE.clone(),
            "b_dec": torch.zeros(2),
            "r_mag": torch.zeros(2),
            "b_mag": torch.tensor([1.0, 0.0]),
            "b_gate": torch.tensor([-2.0, 5.0]),
        },
        tmp_path / "sae_weights.safetensors",
    )
    sae = load_sae(tmp_path, format="sae_lens", device="cpu")
    # Feature 0: open for x > 2, then worth x + 1, so the threshold of pre is 3. Feature 1 is open where relu is shut.
    assert sae.threshold.tolist() == [3.0, 0.0]
    assert sae.encode(torch.tensor([[2.0, -1.0], [2.5, 1.0]])).tolist() == [[0.0, 0.0], [3.5, 1.0]]


def test_llama_scopes_threshold_is_in_raw_units_and_of_unit_decoder_rows(tmp_path: Path) -> None:
    norms = {"in": 2**0.5 / 4, "out": 2**0.5 / 4}  # residuals are multiplied by 4
    releases.llama_scope(tmp_path, 2, 2, 0, jump_relu_threshold=1.0, dataset_average_activation_norm=norms)
    save_file(
        {
            "encoder.weight": EYE,
            "encoder.bias": torch.zeros(2),
            "decoder.weight": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
            "decoder.bias": torch.tensor([8.0, 0.0]),
        },
        tmp_path / "checkpoints/final.safetensors",
    )
    sae = load_sae(tmp_path, format="llama_scope", device="cpu")
    torch.testing.assert_close(sae.threshold, torch.tensor([4.0, 2.0]))  # 1 * 4 / norm
    acts = sae.encode(torch.tensor([0.9, 0.9]))
    torch.testing.assert_close(acts, torch.tensor([0.0, 3.6]))
    torch.testing.assert_close(sae.decode(acts), torch.tensor([2.0, 1.8]))  # ([0, 7.2] + [8, 0]) / 4


def test_an_input_norm_given_overrides_the_releases(tmp_path: Path) -> None:
    releases.sae_lens(tmp_path, D_IN, D_SAE, 0, normalize_activations="layer_norm")
    assert load_sae(tmp_path, format="sae_lens", device="cpu").input_norm == "layer_norm"
    assert load_sae(tmp_path, format="sae_lens", device="cpu", input_norm="none").input_norm == "none"


def test_bfloat16_weights_are_widened_exactly(tmp_path: Path) -> None:
    path = releases.llama_scope(tmp_path, D_IN, D_SAE, 0)
    stored = load_file(path / "checkpoints/final.safetensors")["encoder.weight"]
    assert stored.dtype == torch.bfloat16
    norms = {"in": D_IN**0.5, "out": D_IN**0.5}  # a scale of 1 changes nothing
    releases.llama_scope(tmp_path, D_IN, D_SAE, 0, dataset_average_activation_norm=norms)
    assert torch.equal(load_sae(path, format="llama_scope", device="cpu").W_enc, stored.T.float())


# What would be read wrongly is refused, in words.


@pytest.mark.parametrize(
    ("format", "config", "message"),
    [
        ("sae_lens", {"normalize_activations": "expected_average_only_in"}, "the factor is not in the file"),
        ("sae_lens", {"normalize_activations": "covariance_whitening"}, "must be one of none, layer_norm"),
        ("sae_lens", {"normalize_activations": True}, "the factor is not in the file"),
        ("sae_lens", {"reshape_activations": "hook_z"}, "attention heads"),
        (
            "sae_lens",
            {"activation_fn_str": "tanh-relu"},
            'activation_fn_str is "tanh-relu", must be relu or topk',
        ),
        ("sae_lens", {"d_in": D_SAE}, f"d_in is {D_SAE}, must be {D_IN}"),
        ("sparsify", {"transcode": True}, "transcode is true: it is a transcoder"),
        ("sparsify", {"skip_connection": True}, "skip connection"),
        ("sparsify", {"activation": "groupmax"}, "must be topk"),
        ("sparsify", {"k": D_SAE + 1}, "k is 129; a token keeps between 1 and all 128 features"),
        ("sparsify", {"k": 0}, "k is 0"),
        ("sparsify", {"k": "8"}, 'k is "8", must be a whole number'),
        ("llama_scope", {"hook_point_out": "blocks.1.hook_mlp_out"}, "belongs to a transcoder"),
        (
            "llama_scope",
            {"act_fn": "topk", "jump_relu_threshold": 0.0},
            "must be jumprelu, relu, or topk with",
        ),
        ("llama_scope", {"jump_relu_threshold": -1}, "must be 0 or more"),
        ("llama_scope", {"norm_activation": "token-wise"}, "must be dataset-wise or inference"),
        ("llama_scope", {"dataset_average_activation_norm": {"in": 0}}, "in is 0, must be more than 0"),
        ("llama_scope", {"dataset_average_activation_norm": None}, "must be an object"),
    ],
)
def test_a_configuration_that_changes_the_formula_is_refused(
    format: str, config: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = getattr(releases, format)(tmp_path, D_IN, D_SAE, 0)
    rewrite(path / CONFIGS[format], **config)
    with pytest.raises(SAEFormatError, match=message) as caught:
        load_sae(path, format=format, device="cpu")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "architecture", ["transcoder", "skip_transcoder", "abstopk", "batchtopk", "temporal", 5]
)
def test_an_architecture_that_is_not_read_is_named(architecture: object, tmp_path: Path) -> None:
    releases.sae_lens(tmp_path, D_IN, D_SAE, 0)
    rewrite(tmp_path / "cfg.json", architecture=architecture)
    with pytest.raises(SAEFormatError, match=f"architecture is {json.dumps(architecture)}"):
        load_sae(tmp_path, format="sae_lens", device="cpu")


def test_a_gemma_scope_2_transcoder_is_refused(tmp_path: Path) -> None:
    releases.gemma_scope_2(tmp_path, D_IN, D_SAE, 0, skip=True)
    with pytest.raises(SAEFormatError, match="has an affine_skip_connection"):
        load_sae(tmp_path, format="gemma_scope_2", device="cpu")
    releases.gemma_scope_2(tmp_path, D_IN, D_SAE, 0)
    rewrite(tmp_path / "config.json", hf_hook_point_out="model.layers.5.mlp.output")
    with pytest.raises(SAEFormatError, match="writes to another hook point"):
        load_sae(tmp_path, format="gemma_scope_2", device="cpu")


def test_gemma_scope_2_is_read_without_its_configuration(tmp_path: Path) -> None:
    releases.gemma_scope_2(tmp_path, D_IN, D_SAE, 0)
    (tmp_path / "config.json").unlink()
    assert load_sae(tmp_path, format="gemma_scope_2", device="cpu").d_sae == D_SAE


def test_a_batch_topk_sae_without_a_threshold_yet_is_refused(tmp_path: Path) -> None:
    releases.dictionary_learning(tmp_path, D_IN, D_SAE, 0)
    state = torch.load(tmp_path / "ae.pt", weights_only=True)
    torch.save(state | {"threshold": torch.tensor(-1.0)}, tmp_path / "ae.pt")
    with pytest.raises(SAEFormatError, match=r"its threshold is -1\.0.*Choose a later checkpoint"):
        load_sae(tmp_path, format="dictionary_learning", device="cpu")


def test_an_unknown_dictionary_class_is_named(tmp_path: Path) -> None:
    releases.dictionary_learning(tmp_path, D_IN, D_SAE, 0)
    (tmp_path / "config.json").write_text('{"trainer": {"dict_class": "CrossCoder"}}')
    with pytest.raises(
        SAEFormatError, match=r'trainer\.dict_class is "CrossCoder", must be one of AutoEncoder'
    ):
        load_sae(tmp_path, format="dictionary_learning", device="cpu")


def test_qwen_scopes_k_comes_from_the_file_the_folders_name_or_the_caller(tmp_path: Path) -> None:
    file = releases.qwen_scope(tmp_path / "L0_3", D_IN, D_SAE, 0, k=8)
    assert load_sae(file, format="qwen_scope", device="cpu").k == 8
    assert load_sae(file, format="qwen_scope", device="cpu", k=5).k == 5
    unnamed = tmp_path / "layer1.sae.pt"
    shutil.copy(file, unnamed)
    with pytest.raises(SAEFormatError, match="does not say how many features a token keeps"):
        load_sae(unnamed, format="qwen_scope", device="cpu")
    torch.save(torch.load(file, weights_only=True) | {"k": 7}, unnamed)
    assert load_sae(unnamed, format="qwen_scope", device="cpu").k == 7
    torch.save(torch.load(file, weights_only=True) | {"k": 7.5}, unnamed)
    with pytest.raises(SAEFormatError, match=r"k is 7\.5, must be a whole number"):
        load_sae(unnamed, format="qwen_scope", device="cpu")


def test_k_of_a_format_that_says_it_itself_is_refused(tmp_path: Path) -> None:
    releases.sparsify(tmp_path, D_IN, D_SAE, 0)
    with pytest.raises(SAEFormatError, match="k is said by the release itself"):
        load_sae(tmp_path, format="sparsify", device="cpu", k=3)


def test_weights_without_their_configuration_say_where_it_should_be(tmp_path: Path) -> None:
    releases.sae_lens(tmp_path, D_IN, D_SAE, 0)
    (tmp_path / "cfg.json").unlink()
    with pytest.raises(SAEFormatError, match=r"cfg\.json cannot be read.*let sae\.path name the folder"):
        load_sae(tmp_path, format="sae_lens", device="cpu")


@pytest.mark.parametrize("format", FORMATS)
def test_another_formats_files_are_recognised_in_the_error(format: str, tmp_path: Path) -> None:
    path = getattr(releases, format)(tmp_path, D_IN, D_SAE, 0)
    wrong = "goodfire" if format == "gemma_scope" else "gemma_scope"
    with pytest.raises(SAEFormatError, match=f"named as format {format} names them: set sae.format"):
        load_sae(path, format=wrong, device="cpu")


def test_a_folder_with_several_candidates_asks_for_one(tmp_path: Path) -> None:
    file = releases.qwen_scope(tmp_path, D_IN, D_SAE, 0)
    shutil.copy(file, file.with_name("layer2.sae.pt"))
    with pytest.raises(SAEFormatError, match=r"holds layer1\.sae\.pt, layer2\.sae\.pt.*sae\.path"):
        load_sae(file.parent, format="qwen_scope", device="cpu")


def rewrite(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
