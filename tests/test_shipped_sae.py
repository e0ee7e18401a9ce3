"""The shipped SAE on the real model, over documents its training never saw: as sparse and faithful as its card says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from neuroscope import settings, sources
from neuroscope.corpus import document_id, split
from neuroscope.corpus.readers import read_files
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import load_sae
from neuroscope.training.data import is_held_out

DOCUMENTS = 40


@pytest.fixture(scope="module")
def residuals() -> np.ndarray:
    """Residuals [tokens, 576] of held-out encyclopedia leads, BOS left out, one document at a time."""
    configured = settings.load("smollm2-135m")
    pairing = configured.pairing
    leads = read_files(sources.resolve(configured.corpus.sources[0].source).path)
    documents = [piece for text in leads if isinstance(text, str) for piece in split(text, 2000)]
    held_out = sorted(d for d in documents if is_held_out(document_id(d), 0.05))[:DOCUMENTS]
    model, tokenizer = load_model(sources.resolve(pairing.model).path, device="cpu", dtype=pairing.dtype)
    backend, chat = TorchBackend(model, tokenizer, pairing.layer), ChatTokenizer(tokenizer)
    rows = []
    for document in held_out:
        ids = torch.tensor([chat.encode_text(document).ids])
        rows.append(backend.residuals(ids, torch.ones_like(ids, dtype=torch.bool))[0, 1:])
    return torch.cat(rows).numpy()


def test_it_is_as_sparse_and_as_faithful_as_its_card_says(residuals: np.ndarray) -> None:
    file = sources.resolve(settings.load("smollm2-135m").pairing.sae.uri).path
    card = json.loads(Path(file).with_name("card.json").read_text())
    sae = load_sae(file, device="cpu")
    # In float64 and by the formula itself, not by the code under test.
    x = residuals.astype(np.float64)
    pre = x @ sae.W_enc.double().numpy() + sae.b_enc.double().numpy()
    acts = np.where(pre > sae.threshold.double().numpy(), np.maximum(pre, 0), 0)
    x_hat = acts @ sae.W_dec.double().numpy() + sae.b_dec.double().numpy()

    assert len(x) > 2000
    assert (acts > 0).sum(1).mean() == pytest.approx(card["held_out"]["l0"], rel=0.15)
    unexplained = np.square(x - x_hat).sum() / np.square(x - x.mean(0)).sum()
    assert unexplained <= 0.17
    clear = np.abs(pre - sae.threshold.double().numpy()) > 0.01  # nearer, float32 may fall on the other side
    encoded = sae.encode(torch.from_numpy(residuals)).numpy()
    np.testing.assert_allclose(encoded[clear], acts[clear], rtol=1e-4, atol=5e-3)
    np.testing.assert_allclose(np.linalg.norm(sae.W_dec.numpy(), axis=1), 1, rtol=1e-5)
