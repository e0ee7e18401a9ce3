"""Training: its parts against slow obvious versions, and that it recovers features that are really there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from neuroscope.corpus import SCHEMA, document_id
from neuroscope.errors import ConfigError, NeuroscopeError
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import load_sae
from neuroscope.training.data import ActivationFiles, collect, is_held_out
from neuroscope.training.loop import (
    TrainingPlan,
    batch_top_k,
    decode_sparse,
    evaluate,
    finished,
    initial_state,
    losses,
    schedule,
    train,
)

D_IN, TRUE_FEATURES = 16, 24


def synthetic(count: int, seed: int) -> np.ndarray:
    """Sums of 2 of 24 unit directions, strengths 1 to 2, times 50, around a constant: [count, 16]."""
    rng = np.random.default_rng(7)
    directions = rng.normal(size=(TRUE_FEATURES, D_IN))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    rng = np.random.default_rng(seed)
    active = np.argsort(rng.random((count, TRUE_FEATURES)), axis=1)[:, :2]
    strengths = rng.uniform(1, 2, (count, 2))
    return 50 * (np.einsum("nk,nkd->nd", strengths, directions[active]) + 0.3)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ActivationFiles:
    directory = tmp_path_factory.mktemp("activations")
    for name in ("a", "b", "c"):
        np.save(directory / f"{name}.train.npy", synthetic(3000, ord(name)).astype(np.float16))
        np.save(directory / f"{name}.held_out.npy", synthetic(300, 1000 + ord(name)).astype(np.float16))
    x = np.concatenate([np.load(directory / f"{name}.train.npy") for name in "abc"]).astype(np.float64)
    scale = float(np.sqrt(D_IN / np.square(x).sum(1).mean()))
    return ActivationFiles(directory, dict.fromkeys("abc", (3000, 300)), x.mean(0), scale, "synthetic")


PLAN = TrainingPlan(width=48, k=2, steps=1200, batch=256, lr=3e-3, dead_tokens=20_000, aux_k=8)


def test_batch_top_k_keeps_the_largest_of_the_whole_batch_whatever_the_guess() -> None:
    post = torch.relu(torch.randn(5, 30, generator=torch.Generator().manual_seed(0)))
    expected = post.flatten().topk(15).values.sort().values
    for guess in (0.0, 0.5, 100.0):
        rows, features = batch_top_k(post, 3, guess)
        assert torch.equal(post[rows, features].sort().values, expected)
        assert rows.tolist() == sorted(rows.tolist())


def test_a_sparse_decode_equals_the_dense_product() -> None:
    W_dec = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    acts = torch.tensor([[0.0, 2.0, 0, 0, 1.0, 0], [0] * 6, [0, 0, 0, 0, 0, 3.0]])
    rows, features = torch.nonzero(acts, as_tuple=True)
    torch.testing.assert_close(decode_sparse(rows, features, acts[rows, features], W_dec, 3), acts @ W_dec)


def test_gradients_equal_those_of_the_dense_formula(files: ActivationFiles) -> None:
    x = torch.from_numpy(next(files.batches(64, 0))).float() * files.scale
    state = initial_state(x.mean(0), PLAN)
    losses(x, state, PLAN)[0].backward()  # type: ignore[no-untyped-call]
    sparse_gradients = [parameter.grad for parameter in state.parameters]

    dense = initial_state(x.mean(0), PLAN)
    post = torch.relu((x - dense.b_dec) @ dense.W_enc + dense.b_enc)
    kept = post * (post >= post.flatten().topk(2 * 64).values.min())
    error = x - kept @ dense.W_dec - dense.b_dec
    (error.square().sum() / (x - x.mean(0)).square().sum()).backward()  # type: ignore[no-untyped-call]
    for ours, parameter in zip(sparse_gradients, dense.parameters, strict=True):
        torch.testing.assert_close(ours, parameter.grad)


def test_folding_the_scale_into_the_weights_leaves_features_and_reconstruction_as_they_were(
    files: ActivationFiles,
) -> None:
    raw = torch.from_numpy(synthetic(32, 3)).float()
    state = initial_state(torch.from_numpy(files.mean).float() * files.scale, PLAN)
    with torch.no_grad():
        state.b_enc += 0.1
    sae = finished(state, files.scale, threshold=0.4)
    scaled = raw * files.scale
    post = torch.relu((scaled - state.b_dec) @ state.W_enc + state.b_enc)
    post = post * (post > 0.4)

    torch.testing.assert_close(sae.encode(raw) * files.scale, post.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        sae.decode(sae.encode(raw)) * files.scale,
        (post @ state.W_dec + state.b_dec).detach(),
        rtol=1e-4,
        atol=1e-4,
    )
    torch.testing.assert_close(sae.W_dec.norm(dim=1), torch.ones(48))


def test_training_explains_data_that_is_sparse_and_writes_what_it_measured(
    files: ActivationFiles, tmp_path: Path
) -> None:
    card = train(files, PLAN, tmp_path / "sae", notes={"data": "synthetic"}, checkpoint=tmp_path / "c.pt")

    assert card["held_out"]["fvu"] < 0.05
    assert 1.7 < card["held_out"]["l0"] < 2.3
    assert json.loads((tmp_path / "sae/card.json").read_text()) == card
    sae = load_sae(tmp_path / "sae/params.npz", device="cpu")
    assert evaluate(sae, files.held_out()) == card["held_out"]
    x = np.concatenate(list(files.held_out())).astype(np.float64)
    x_hat = sae.decode(sae.encode(torch.from_numpy(x).float())).numpy()
    fvu = np.square(x - x_hat).sum() / np.square(x - x.mean(0)).sum()
    assert card["held_out"]["fvu"] == pytest.approx(fvu, rel=1e-4)


def test_a_killed_training_goes_on_and_ends_with_the_same_weights(
    files: ActivationFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = TrainingPlan(width=32, k=2, steps=60, batch=128, dead_tokens=2_000, aux_k=4)
    monkeypatch.setattr("neuroscope.training.loop.CHECKPOINT_STEPS", 25)
    whole = train(files, plan, tmp_path / "whole", notes={}, checkpoint=tmp_path / "whole.pt")

    class Killed(BaseException):
        pass

    original = ActivationFiles.batches

    def cut(self: ActivationFiles, *args: Any, **named: Any) -> Iterator[np.ndarray]:
        for number, batch in enumerate(original(self, *args, **named)):
            if number == 40:
                raise Killed
            yield batch

    monkeypatch.setattr(ActivationFiles, "batches", cut)
    with pytest.raises(Killed):
        train(files, plan, tmp_path / "cut", notes={}, checkpoint=tmp_path / "cut.pt")
    monkeypatch.setattr(ActivationFiles, "batches", original)
    resumed = train(files, plan, tmp_path / "cut", notes={}, checkpoint=tmp_path / "cut.pt")

    assert resumed["sha256"] == whole["sha256"]


def test_more_active_features_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.k is 65; it must be from 1 to training\.width, 64"):
        TrainingPlan(width=64, k=65)


def test_training_without_a_held_out_document_is_refused_before_it_begins(
    files: ActivationFiles, tmp_path: Path
) -> None:
    nothing_held_out = replace(files, counts=dict.fromkeys("abc", (3000, 0)))
    with pytest.raises(NeuroscopeError, match=r"raise training\.held_out"):
        train(nothing_held_out, PLAN, tmp_path, notes={}, checkpoint=tmp_path / "c.pt")
    assert not list(tmp_path.iterdir())


def test_the_checkpoint_of_another_plan_is_not_used(files: ActivationFiles, tmp_path: Path) -> None:
    short = TrainingPlan(width=32, k=2, steps=200, batch=64)
    train(files, short, tmp_path, notes={}, checkpoint=tmp_path / "c.pt")
    other = TrainingPlan(width=32, k=3, steps=1, batch=64)
    assert train(files, other, tmp_path, notes={}, checkpoint=tmp_path / "c.pt")["steps"] == 1


def test_the_learning_rate_rises_stays_and_falls_to_nothing() -> None:
    plan = TrainingPlan(steps=100, warmup=10, decay=0.2)
    assert [schedule(step, plan) for step in (0, 4, 9, 50, 80, 90, 99)] == [0.1, 0.5, 1, 1, 1, 0.5, 0.05]


def test_batches_skipped_on_a_restart_are_those_already_seen(files: ActivationFiles) -> None:
    batches = files.batches(1000, seed=5)
    seen = [next(batches) for _ in range(20)]  # two epochs of nine and a bit
    rest = files.batches(1000, seed=5, start=13)
    assert all(np.array_equal(next(rest), batch) for batch in seen[13:])


def test_an_epoch_holds_every_training_token_once(files: ActivationFiles) -> None:
    batches = files.batches(3000, seed=0)
    epoch = np.concatenate([next(batches) for _ in range(3)])
    everything = np.concatenate([np.load(files.directory / f"{name}.train.npy") for name in "abc"])
    assert sorted(map(bytes, epoch)) == sorted(map(bytes, everything))


def documents(count: int) -> pl.DataFrame:
    texts = [
        f"Document number {i} says that the river {i * 7} is long and the hill is high." for i in range(count)
    ]
    rows = [(document_id(text), "encyclopedia", "made", text) for text in texts]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("doc_id")


def test_collected_residuals_are_those_of_a_plain_forward_without_bos_and_split_by_document(
    tiny_llama: tuple[Any, Any], tmp_path: Path
) -> None:
    model, tokenizer = tiny_llama
    frame, chat = documents(12), ChatTokenizer(tokenizer)
    files = collect(
        frame,
        chat,
        TorchBackend(model, tokenizer, 1),
        tmp_path,
        tokens=10**9,
        held_out=0.4,
        window=4096,
        batch=4,
        bos=True,
        outlier_norm=1e9,
        chunk_documents=5,
        made_from="tiny",
    )
    expected: dict[str, list[np.ndarray]] = {"train": [], "held_out": []}
    for doc_id, text in frame.select("doc_id", "text").iter_rows():
        ids = [chat.bos_id, *chat.encode_text(text, bos=False).ids]
        with torch.inference_mode():
            states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        expected["held_out" if is_held_out(doc_id, 0.4) else "train"].append(states[2][0, 1:].numpy())

    for part, rows in expected.items():
        assert rows, "the split left a part empty"
        found = np.concatenate([np.load(file) for file in sorted(tmp_path.glob(f"*.{part}.npy"))])
        order = np.lexsort(found.T), np.lexsort(np.concatenate(rows).astype(np.float16).T)
        np.testing.assert_allclose(
            found[order[0]], np.concatenate(rows).astype(np.float16)[order[1]], rtol=2e-2, atol=2e-2
        )
    train_rows = np.concatenate(expected["train"]).astype(np.float64)
    np.testing.assert_allclose(files.mean, train_rows.mean(0), atol=1e-2)
    assert files.scale == pytest.approx(
        np.sqrt(files.mean.size / np.square(train_rows).sum(1).mean()), rel=1e-3
    )
