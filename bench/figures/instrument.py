"""What the instrument costs an answer: speed kept with SAE, ranking, events and one subscriber (`instrumented`).

The first figure is the shipped pairing's. The second is Gemma 2 2B's real shape with random weights, bfloat16, and an
SAE of 16,384 features whose thresholds let some 70 pass: reading its encoder whole would cost 2.8%; it is screened,
and every token's active features are held against the whole encoder's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from bench.figure import Figure, Spread
from bench.instrumented import Instrumented, Recorder, instrumented, is_on, kept
from neuroscope import settings
from neuroscope.engine import Engine
from neuroscope.manifest import Fingerprint
from neuroscope.models.chat import Prompt
from neuroscope.models.torch_backend import TorchBackend
from neuroscope.sae import SparseAutoencoder
from neuroscope.server.loaded import Loaded
from neuroscope.server.loading import loader

PAIRING = "smollm2-135m"
TOKENS, ANSWERS = 60, 4
"""Of one answer; and answers for each round."""
ASKED = [{"role": "user", "content": "Tell me a long story of a fox that wanted to see the sea."}]

GEMMA_TOKENS = 32
GEMMA = {
    "num_hidden_layers": 26,
    "hidden_size": 2304,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "intermediate_size": 9216,
    "vocab_size": 256_000,
}
PROMPT = list(range(2, 10))
LAYER = 20
WIDTH = 16_384
L0 = 70


def measure(rounds: int) -> list[Figure]:
    return [smollm(rounds), gemma(rounds)]


def smollm(rounds: int) -> Figure:
    settled = settings.load(PAIRING)
    with instrumented(settled, loader(settled), ASKED, TOKENS) as sides:
        found, answers = sides.recorded(), sides.answers(ANSWERS * rounds)
        about = details(sides, found, answers)
    share = about["model_mb"] / (about["model_mb"] + about["encoder_mb"])
    about["ratio_of_bytes"] = round(share, 4)
    return Figure(
        "instrument-smollm2",
        "speed of an answer with SAE, ranking, events and one subscriber, by the ratio of bytes read",
        "the tokens between, with the instrument off",
        Spread.of([kept(seconds) / share for seconds in answers]),
        "x",
        at_least=0.98,
        details=about,
        note="The ratio of bytes is model / (model + encoder): what reading the encoder itself costs is taken out.",
    )


def gemma(rounds: int) -> Figure:
    with instrumented(settings.load(PAIRING), load_gemma, "", GEMMA_TOKENS) as sides:
        found, answers = sides.recorded(), sides.answers(rounds)
        sae = sides.engine.sae
        for residual, acts in found.rows:
            whole = sae.encode(residual).nonzero()[:, 0]
            if acts.indices.tolist() != whole.tolist():
                raise SystemExit("The screen found other features than the whole encoder.")
        about = details(sides, found, answers)
        assert sides.reader.screen is not None
        about["screen_mb"] = round(sides.reader.screen.one_row.copy.bytes / 1e6, 1)
        about["candidates_median"] = median(found.candidates)
    return Figure(
        "instrument-gemma-2-2b-shape",
        "speed of an answer with SAE, ranking, events and one subscriber, Gemma 2 2B's shape and 16k features",
        "the tokens between, with the instrument off",
        Spread.of([kept(seconds) for seconds in answers]),
        "x",
        at_least=0.985,
        details=about,
        note="Random weights in bfloat16; the active features of every token equal those of the whole encoder.",
    )


def details(sides: Instrumented, found: Recorder, answers: list[list[float]]) -> dict[str, Any]:
    sae, model = sides.engine.sae, sides.engine.backend.model  # type: ignore[attr-defined]
    clock = sides.reader.clock
    by = {on: [s for one in answers for i, s in enumerate(one) if is_on(i) == on] for on in (True, False)}
    return {
        "tokens_per_s": round(1 / median(by[True]), 2),
        "without_tokens_per_s": round(1 / median(by[False]), 2),
        "model_mb": round(bytes_read(model) / 1e6, 1),
        "encoder_mb": round(sae.W_enc.numel() * 4 / 1e6, 1),
        "decoder_rows_mb": round(median(acts.l0 for _, acts in found.rows) * sae.d_in * 4 / 1e6, 2),
        "l0_median": median(acts.l0 for _, acts in found.rows),
        "sae_ms": round(clock.seconds / clock.count * 1e3, 2),
    }


def bytes_read(model: Any) -> int:
    """Bytes of weights that one token reads: all, but for an embedding that is not the unembedding too."""
    weights = {parameter.data_ptr(): parameter for parameter in model.parameters()}
    total = sum(weight.numel() * weight.element_size() for weight in weights.values())
    embedding = model.get_input_embeddings().weight
    tied = embedding.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    return total if tied else total - embedding.numel() * embedding.element_size()


class Numbers:
    """A chat without a tokenizer: the text of token 7 is " 7"; no token ends an answer."""

    end_ids: frozenset[int] = frozenset()
    vocabulary = GEMMA["vocab_size"]

    def encode_text(self, text: str) -> Prompt:
        return Prompt(PROMPT, [True] * len(PROMPT))

    def token_bytes(self, token: int) -> bytes:
        return f" {token}".encode()

    def detokenizer(self, **_: Any) -> Any:
        return SimpleNamespace(step=lambda token: f" {token}", finish=lambda: "", inside_character=False)


def load_gemma(enter_stage: Callable[[str], None]) -> Loaded:
    enter_stage("making random weights")
    model = random_gemma()
    backend = TorchBackend(model, None, LAYER)
    sae = random_sae(backend)
    chat: Any = Numbers()
    known: Any = {
        "label_sources": {},
        "stats": None,
        "results": None,
        "neuronpedia": None,
        "verification": None,
    }
    return Loaded(
        model="gemma-2-2b-shape",
        aliases=frozenset(),
        pairing=PAIRING,
        engine=Engine(backend, sae, chat),
        context_length=backend.context_length,
        fingerprint=Fingerprint("made up", None, "", "made up", "", LAYER, sae.d_in, WIDTH),
        layer=LAYER,
        device="cpu",
        dtype="bfloat16",
        decoding=backend.decoding,
        sae_id="random",
        width=WIDTH,
        labels=(),
        degraded=(),
        **known,
    )


def random_gemma() -> Any:
    """Every matrix a repetition of one random block, which is as fast as filling memory."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    with torch.device("meta"):
        model = Gemma2ForCausalLM(Gemma2Config(**GEMMA)).to(torch.bfloat16)
    small = {**GEMMA, "num_hidden_layers": 1, "vocab_size": 8, "intermediate_size": 8}
    buffers = dict(Gemma2ForCausalLM(Gemma2Config(**small)).named_buffers())
    model = model.to_empty(device="cpu").eval()
    model.tie_weights()
    generator = torch.Generator().manual_seed(0)
    block = (torch.randn(4_000_037, generator=generator) * 0.02).to(torch.bfloat16)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.zero_()  # of an RMS norm that multiplies by 1 + weight
                continue
            for piece in weight.view(-1).split(len(block)):
                piece.copy_(block[: len(piece)])
        for name, buffer in model.named_buffers():  # the embedding's scale, the rotary frequencies
            buffer.copy_(buffers[name])
    return model


def answer_residuals(backend: TorchBackend) -> Iterator[Tensor]:
    """Of the answer that is measured: greedy, after the one prompt there is."""
    forward = backend.forward(PROMPT)
    for _ in range(GEMMA_TOKENS):
        forward = backend.forward([int(forward.logits.argmax())])
        yield forward.residual.float()
    backend.rewind(0)


def random_sae(backend: TorchBackend) -> SparseAutoencoder:
    """Unit columns, and one threshold that L0 features of the median token pass."""
    generator = torch.Generator().manual_seed(1)
    W_enc = torch.randn(backend.d_model, WIDTH, generator=generator)
    W_enc /= W_enc.norm(dim=0)
    pre = torch.cat(list(answer_residuals(backend))) @ W_enc
    between = (
        pre.topk(L0 + 1, dim=1).values[:, -2:].mean(1)
    )  # on no pre-activation, where rounding would decide
    threshold = between.median()
    W_dec = W_enc.T.contiguous()
    return SparseAutoencoder(
        W_enc, torch.zeros(WIDTH), threshold.expand(WIDTH).clone(), W_dec, torch.zeros(backend.d_model)
    )
