"""Promoted and suppressed tokens, against the whole product made at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from neuroscope.autointerp.logits import compute_logits, extreme_tokens, final_norm, unembedding
from neuroscope.errors import ModelError


def test_blocks_of_the_vocabulary_do_not_change_the_answer() -> None:
    torch.manual_seed(0)
    W_dec, W_U, gain = torch.randn(7, 16), torch.randn(101, 16), torch.rand(16) + 0.5
    shown = torch.rand(101) > 0.2
    dense = W_dec.double() @ (gain * W_U).double().T
    for block in (1, 7, 10, 64, 101, 500):
        found = extreme_tokens(W_dec * gain, W_U, shown, 10, token_block=block)
        for kind, outside, largest in (("promoted", -torch.inf, True), ("suppressed", torch.inf, False)):
            tokens, weights = found[kind]
            expected = dense.masked_fill(~shown, outside).topk(10, dim=1, largest=largest)
            assert torch.equal(tokens, expected.indices)
            torch.testing.assert_close(weights.double(), expected.values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["tiny_gemma", "tiny_llama"])
def test_the_gain_is_what_the_models_own_norm_multiplies_by(
    family: str, request: pytest.FixtureRequest
) -> None:
    model, _ = request.getfixturevalue(family)
    norm = model.base_model.norm
    saved = norm.weight.data.clone()
    try:
        norm.weight.data = torch.linspace(-0.5, 0.5, len(saved))
        x = torch.randn(5, len(saved))
        with torch.inference_mode():
            expected = norm(x)
        gain = final_norm(model).gain
        torch.testing.assert_close(
            gain * x / x.pow(2).mean(1, keepdim=True).sqrt(), expected, rtol=1e-4, atol=1e-4
        )
    finally:
        norm.weight.data = saved


def test_gemmas_gain_is_one_plus_the_weight_and_llamas_the_weight(
    tiny_gemma: tuple[Any, Any], tiny_llama: tuple[Any, Any]
) -> None:
    gemma, llama = tiny_gemma[0], tiny_llama[0]
    torch.testing.assert_close(
        final_norm(gemma).gain, 1 + gemma.base_model.norm.weight.detach(), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(
        final_norm(llama).gain, llama.base_model.norm.weight.detach(), rtol=1e-4, atol=1e-4
    )


def test_a_layer_norm_takes_the_mean_away_and_its_gain_is_its_weight() -> None:
    model = nn.Module()
    model.transformer = nn.Module()
    model.transformer.h = nn.ModuleList()
    model.transformer.ln_f = nn.LayerNorm(4)
    model.transformer.ln_f.weight.data = torch.tensor([1.0, 2.0, 3.0, 4.0])
    model.transformer.ln_f.bias.data = torch.tensor([5.0, 6.0, 7.0, 8.0])
    norm = final_norm(model)
    assert norm.centres
    torch.testing.assert_close(norm.gain, torch.tensor([1.0, 2.0, 3.0, 4.0]), rtol=1e-4, atol=1e-4)
    direction = torch.tensor([[3.0, 1.0, 1.0, 3.0]])  # mean 2
    torch.testing.assert_close(
        norm.apply(direction), torch.tensor([[1.0, -2.0, -3.0, 4.0]]), rtol=1e-4, atol=1e-4
    )


def test_a_model_without_a_final_norm_or_a_head_is_named() -> None:
    model = nn.Module()
    model.gpt_neox = nn.Module()
    model.gpt_neox.layers = nn.ModuleList()
    with pytest.raises(ModelError, match="No final norm found in Module"):
        final_norm(model)

    class Headless(nn.Module):
        def get_output_embeddings(self) -> None:
            return None

    with pytest.raises(ModelError, match="Headless has no output embedding"):
        unembedding(Headless())


@pytest.fixture
def logits(tiny_llama: tuple[Any, Any], tmp_path: Path) -> tuple[Any, torch.Tensor, pl.DataFrame]:
    torch.manual_seed(1)
    model, tokenizer = tiny_llama
    W_dec = torch.randn(9, model.config.hidden_size)
    rows = compute_logits(
        W_dec=W_dec,
        model=model,
        tokens=lambda i: "" if i == 300 else tokenizer.decode([i]),
        out=tmp_path / "logits.parquet",
        excluded=[0, 1, 2, 10_000],
        feature_block=4,
    )
    frame = pl.read_parquet(tmp_path / "logits.parquet")
    assert rows == len(frame) == 9 * 2 * 10
    return model, W_dec, frame


def test_the_table_lists_the_largest_and_the_smallest_weights(
    logits: tuple[Any, torch.Tensor, pl.DataFrame], tiny_llama: tuple[Any, Any]
) -> None:
    model, W_dec, frame = logits
    silent = [i for i in range(320) if not tiny_llama[1].decode([i])]
    assert frame.columns == ["feature", "kind", "rank", "token_id", "token", "weight"]
    dense = (final_norm(model).apply(W_dec) @ unembedding(model).T).detach().numpy()
    dense[:, [0, 1, 2, 300, *silent]] = np.nan
    for feature in range(9):
        order = np.argsort(-np.where(np.isnan(dense[feature]), -np.inf, dense[feature]))
        rows = frame.filter(pl.col("feature") == feature)
        up, down = rows.filter(pl.col("kind") == "promoted"), rows.filter(pl.col("kind") == "suppressed")
        assert up["rank"].to_list() == list(range(10))
        assert up["token_id"].to_list() == order[:10].tolist()
        np.testing.assert_allclose(up["weight"], dense[feature][order[:10]], rtol=1e-4)
        bottom = np.argsort(np.where(np.isnan(dense[feature]), np.inf, dense[feature]))[:10]
        assert down["token_id"].to_list() == bottom.tolist()
        np.testing.assert_allclose(down["weight"], dense[feature][bottom], rtol=1e-4)


def test_special_tokens_and_tokens_without_text_are_not_shown(
    logits: tuple[Any, torch.Tensor, pl.DataFrame],
) -> None:
    assert not set(logits[2]["token_id"].to_list()) & {0, 1, 2, 300}


def test_a_decoder_of_another_width_is_refused(tiny_llama: tuple[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="decodes to 5 dimensions, the model has 32"):
        compute_logits(W_dec=torch.randn(3, 5), model=tiny_llama[0], tokens=str, out=tmp_path / "x.parquet")
