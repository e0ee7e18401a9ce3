"""Each family of model, loaded as its releases are: the residual at every layer against what the model itself
says of it, and every way of running a text against one plain pass over it.

The oracle does not use the hook: `output_hidden_states`, and for the last layer, where that is taken after the
final norm, what goes into the final norm.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes.families import CONTEXT, D_MODEL, FAMILIES, GROUPED, LAYERS, VOCABULARY, WINDOW, save_family
from torch import Tensor

from neuroscope.autointerp.logits import final_norm, unembedding
from neuroscope.errors import ModelError
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.context import context_length
from neuroscope.models.hooks import decoder, residual_at
from neuroscope.models.loading import load_model
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder
from neuroscope.sweep.activations import BatchLimit, Instrument, measure
from neuroscope.sweep.plan import SweepOptions
from neuroscope.sweep.windows import tokenize

Load = Callable[[str, str], tuple[Any, Any]]

TOLERANCE = {"float32": 5e-5, "bfloat16": 0.08}
"""Largest distance between two ways to one residual, as a share of its length.

The ways differ in the order of their sums only. One rounding costs a share of 2**-24 in float32 and 2**-9 in
bfloat16; some 10 of them in each of 4 layers, enlarged by weights that are ten times those of a trained model, came to
1e-5 and 0.04 at most, over all families, layers and ways below. A mistake in a mask or a position costs 0.3 and more.
"""
DTYPES = list(TOLERANCE)
LENGTH = 100  # past every window, and past a cell of the engine's prefill
CELL = 64


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """(model, tokenizer) of a family in a dtype, through the real loading; each once."""
    torch.set_num_threads(1)

    @cache
    def saved(name: str) -> Path:
        return save_family(name, tmp_path_factory.mktemp(name))

    @cache
    def loaded(name: str, dtype: str) -> tuple[Any, Any]:
        return load_model(saved(name), device="cpu", dtype=dtype)

    return loaded


def ids_of(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(10, VOCABULARY, (length,), generator=generator).tolist()
    return ids


def norm_of(name: str, model: Any) -> Any:
    """The norm before the unembedding."""
    children = FAMILIES[name].text(model).named_children()
    (norm,) = [child for called, child in children if "norm" in called or called == "ln_f"]
    return norm


def residuals_of(name: str, model: Any, ids: list[int]) -> list[Tensor]:
    """Oracle: the residual [len(ids), d_model] after each layer, in one pass without cache, mask or our hook."""
    seen: list[Tensor] = []
    handle = norm_of(name, model).register_forward_pre_hook(lambda _norm, args: seen.append(args[0]))
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    handle.remove()
    states = output.hidden_states  # the embedding, then after each layer; the last behind the final norm
    assert len(states) == LAYERS + 1
    return [*(state[0] for state in states[1:-1]), seen[0][0]]


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest distance of two rows, as a share of the expected one's length; rows are [n, d]."""
    assert found.shape == expected.shape
    found, expected = found.double(), expected.double()
    return float(((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


def only(ids: list[int]) -> tuple[Tensor, Tensor]:
    """A batch of one row."""
    row = torch.tensor([ids])
    return row, torch.ones_like(row, dtype=torch.bool)


families = pytest.mark.parametrize("name", FAMILIES)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


@dtypes
@families
def test_the_hook_takes_the_residual_the_model_itself_speaks_of(load: Load, name: str, dtype: str) -> None:
    """Bit for bit: hooked or not, stopped after the layer or not, the same operations run."""
    model, _ = load(name, dtype)
    ids = ids_of(LENGTH)
    expected = residuals_of(name, model, ids)
    for layer in range(LAYERS):
        with residual_at(model, layer) as tap, torch.inference_mode():
            model(input_ids=torch.tensor([ids]), use_cache=False)
        assert torch.equal(tap.take()[0], expected[layer])
        assert torch.equal(TorchBackend(model, None, layer).residuals(*only(ids))[0], expected[layer])
    assert expected[0].dtype == getattr(torch, dtype)
    assert all(not torch.equal(one, other) for one, other in pairwise(expected))


@dtypes
@families
def test_token_by_token_is_one_pass(load: Load, name: str, dtype: str) -> None:
    model, _ = load(name, dtype)
    ids = ids_of(LENGTH)
    for layer in (0, LAYERS - 1):
        backend = TorchBackend(model, None, layer)
        steps = [backend.forward([token]) for token in ids]
        found = torch.cat([step.residual for step in steps])
        assert distance(found, residuals_of(name, model, ids)[layer]) < TOLERANCE[dtype]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
    assert distance(steps[-1].logits[None], logits[None]) < TOLERANCE[dtype]


@dtypes
@families
@pytest.mark.parametrize("kept", [WINDOW - 4, CELL])
def test_a_cache_cut_back_goes_on_as_a_fresh_pass(load: Load, name: str, dtype: str, kept: int) -> None:
    """Before and past the window: what a windowed layer no longer sees must still be there after the cut."""
    model, _ = load(name, dtype)
    first, second = ids_of(LENGTH), ids_of(30, seed=1)
    backend = TorchBackend(model, None, LAYERS - 1)
    backend.forward(first)
    assert backend.rewind(kept) == kept
    found = torch.cat(
        [backend.forward(second[:20]).residual, *(backend.forward([i]).residual for i in second[20:])]
    )
    expected = residuals_of(name, model, first[:kept] + second)[-1][kept:]
    assert distance(found, expected) < TOLERANCE[dtype]


@families
def test_layers_see_their_window_and_no_more(load: Load, name: str) -> None:
    """The first token of a text reaches layer 0 of a windowed family for WINDOW positions, all at full attention.

    Of the tokens fed one by one: a decode step has no other mask than the one the cache's length gives it.
    """
    model, _ = load(name, "float32")
    ids = ids_of(2 * WINDOW)
    changed = [ids[0] + 1, *ids[1:]]
    rows = []
    for text in (ids, changed):
        backend = TorchBackend(model, None, 0)
        rows.append(torch.cat([backend.forward([token]).residual for token in text]))
    reached = (rows[0] != rows[1]).any(dim=-1)
    assert reached[:WINDOW].all()
    assert reached[WINDOW:].any() != FAMILIES[name].windowed


def test_gemma_2_caps_its_attention_scores(load: Load) -> None:
    """Oracle: a pass whose scores of attention go through no cap is another one."""
    model, _ = load("gemma2", "float32")
    assert model.config._attn_implementation == "eager"
    ids = ids_of(LENGTH)
    capped = residuals_of("gemma2", model, ids)[0]
    attention = decoder(model).layers[0].self_attn
    attention.attn_logit_softcapping = None
    uncapped = residuals_of("gemma2", model, ids)[0]
    attention.attn_logit_softcapping = model.config.attn_logit_softcapping
    assert distance(capped, uncapped) > 0.05


def test_gemma_2_without_caps_is_loaded(tmp_path: Path) -> None:
    """A fine-tune whose config takes the caps away: its family knows eager attention only."""
    folder = save_family("gemma2", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attn_logit_softcapping": None}))
    model, _ = load_model(folder, device="cpu", dtype="float32")
    lean, own = (TorchBackend(model, None, 1, decode=mode) for mode in ("lean", "model"))
    for token in (20, 30, 40):
        assert distance(lean.forward([token]).residual, own.forward([token]).residual) < TOLERANCE["float32"]


@dtypes
@families
def test_a_sweep_measures_what_each_document_gives_alone(load: Load, name: str, dtype: str) -> None:
    """Documents of several lengths, cut into windows, batched and padded, through an SAE in float32.

    Oracle: each window alone, encoded in float64. The SAE's features are the ReLU of random directions, so none is
    lost to a threshold that rounding crosses.
    """
    model, tokenizer = load(name, dtype)
    chat = ChatTokenizer(tokenizer)
    layer, body = 2, 39 if chat.bos_id is not None else 40
    generator = torch.Generator().manual_seed(1)
    W_enc = torch.randn(D_MODEL, 16, generator=generator)
    backend = TorchBackend(model, tokenizer, layer)
    sae = SparseAutoencoder(W_enc, torch.zeros(16), torch.zeros(16))
    texts = ["the user said hello to the model " * 12, "good", "", "goodbye then, 🧿 <eos></s> the same"]
    tokens = tokenize(chat, "text", texts, bos=True)
    found = measure(
        tokens,
        Instrument(backend, sae, chat.bos_id),
        SweepOptions(window=40, batch=8, outlier_norm=1e9),
        BatchLimit(8),
    )
    assert found.value.dtype == np.float32
    acts = torch.zeros(len(tokens), 16, dtype=torch.float64)
    acts[found.firing_token, found.feature.astype(np.int64)] = torch.from_numpy(found.value).double()

    expected, start, lead = [], 0, [chat.bos_id] if chat.bos_id is not None else []
    for length in tokens.lengths:
        ids = tokens.ids[start : start + length].tolist()
        for at in range(0, length, body):
            alone = residuals_of(name, model, lead + ids[at : at + body])[layer][len(lead) :]
            expected.append((alone.double() @ W_enc.double()).relu())
        start += length
    assert len(expected) >= 4
    assert distance(acts, torch.cat(expected)) < TOLERANCE[dtype]


@families
def test_windows_get_the_familys_bos_once_or_none(load: Load, name: str) -> None:
    """Qwen has no BOS. GPT-2 and Phi have one that their tokenizers do not write: it goes before a text, where SAEs
    were trained with it, and into no chat.
    """
    _, tokenizer = load(name, "float32")
    chat, tokens = ChatTokenizer(tokenizer), FAMILIES[name].tokens
    assert chat.adds_bos == tokens.adds_bos
    prompt = chat.encode_text("hello")
    if tokens.bos is None:
        assert chat.bos_id is None
        assert all(prompt.content)
    else:
        assert prompt.ids[0] == tokenizer.convert_tokens_to_ids(tokens.bos)
        assert prompt.ids.count(chat.bos_id) == 1
        assert prompt.content == [False, *[True] * (len(prompt.ids) - 1)]
    if tokens.template is not None:
        conversation = chat.render(
            [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good"}]
        )
        written = tokens.adds_bos or "bos_token" in tokens.template
        assert conversation.ids.count(chat.bos_id) == int(written)
        assert conversation.ids[0] == chat.bos_id or not written


@families
def test_what_lies_beyond_the_context_is_refused_in_words(load: Load, name: str) -> None:
    """Above all with learned positions: a table has no row for it."""
    model, _ = load(name, "float32")
    backend = TorchBackend(model, None, 0)
    assert backend.context_length == CONTEXT
    assert backend.d_model == D_MODEL
    backend.forward(ids_of(CONTEXT))
    with pytest.raises(ModelError, match="1 tokens after 160 cannot run: the context is 160"):
        backend.forward([5])
    assert backend.residuals(*only(ids_of(CONTEXT))).shape == (1, CONTEXT, D_MODEL)
    with pytest.raises(
        ModelError, match=r"Windows of 161 tokens .* context is 160\. Set sweep\.window to 160 or less"
    ):
        backend.residuals(*only(ids_of(CONTEXT + 1)))


@pytest.mark.parametrize("limit", ["n_positions", "max_seq_len"])
def test_the_context_is_found_under_other_names(limit: str) -> None:
    from transformers import PretrainedConfig

    assert context_length(PretrainedConfig(**{limit: 77})) == 77
    with pytest.raises(
        ModelError, match=r"does not say how long its context is: it has none of max_position"
    ):
        context_length(PretrainedConfig(max_position_embeddings=None))


def test_a_context_ends_where_longrope_turns_to_other_frequencies() -> None:
    """Phi 3 of 128k: beyond, a token's residual would depend on whether the text was read at once or bit by bit."""
    from transformers import AutoModelForCausalLM, Phi3Config

    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0, 3.0, 4.0, 5.0],
    }
    rope["original_max_position_embeddings"] = 40
    config = Phi3Config(**GROUPED, pad_token_id=0, eos_token_id=1, bos_token_id=2, rope_parameters=rope)
    config.original_max_position_embeddings = 40
    model = AutoModelForCausalLM.from_config(config).eval()
    backend = TorchBackend(model, None, 1)
    assert backend.context_length == 40
    one_pass = backend.forward(ids_of(40)).residual
    backend.rewind(0)
    steps = torch.cat([backend.forward([token]).residual for token in ids_of(40)])
    assert distance(steps, one_pass) < TOLERANCE["float32"]
    with torch.inference_mode(), residual_at(model, 1) as tap:
        model(input_ids=torch.tensor([ids_of(41)]), use_cache=False)
        longer = tap.take()[0, :40]
    assert distance(longer, one_pass) > 0.3


@families
def test_promoted_tokens_follow_from_the_models_own_norm_and_head(load: Load, name: str) -> None:
    """Oracle: how the logits behind the final norm change when the residual moves along a direction, with the
    residual's size held fixed: by symmetric differences in float64 of the model's own norm and head.
    """
    model, _ = load(name, "float32")
    norm = norm_of(name, model)
    head = model.get_output_embeddings()
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(D_MODEL, generator=generator).double() * 5
    x -= x.mean()  # so that an RMS norm and a layer norm divide by the same
    directions = torch.randn(7, D_MODEL, generator=generator).double() + 0.5
    scale = x.pow(2).mean().sqrt()

    def logits(y: Tensor) -> Tensor:
        """Behind the norm at `y`, were its size that of x."""
        size = (
            (y - y.mean(-1, keepdim=True) if isinstance(norm, torch.nn.LayerNorm) else y)
            .pow(2)
            .mean(-1)
            .sqrt()
        )
        with torch.inference_mode():
            normed = norm(y.float()).double()
            bias = norm.bias.double() if getattr(norm, "bias", None) is not None else 0.0
            return ((normed - bias) * (size / scale)[:, None]) @ head.weight.double().T

    expected = (logits(x + directions) - logits(x - directions)) / 2 * scale
    found = final_norm(model).apply(directions) @ unembedding(model).float().T
    assert distance(found, expected) < 1e-4
