"""Decoding by llama.cpp with the instrument, against llama.cpp's own loop on the same file with as many threads.

Token by token in turns. With: the backend, the SAE, ranking and the event as JSON, as the engine and the server give
them, greedy. Without: llama.cpp's own functions alone, the likeliest token taken by its greedy sampler, no callback; on
weights that lie where llama.cpp puts them by itself, anew in each round. For what the instrument costs, and not what
large pages give, there is a second one, on the backend's own weights. SmolLM2-135M is real; the larger models are
random, their blocks of Q4_0 written straight into a file, with a random SAE of 16,384 features.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import gguf
import numpy as np
import torch

import neuroscope
from bench.figure import Figure, Spread
from bench.instrumented import is_on, kept
from neuroscope.engine import Engine, Sampling
from neuroscope.models.chat import ChatTokenizer, Prompt
from neuroscope.models.llamacpp import LlamaCppBackend
from neuroscope.models.llamacpp_library import llama
from neuroscope.ranking import Ranking, select
from neuroscope.sae import SparseAutoencoder

PAIRING = "smollm2-135m"
SMALL, LARGE = 240, 48
"""Tokens of one round, half of them with the instrument."""
POSITIONS = 2048
LAYER = 20
FEATURES = 16_384
ACTIVE = 70
"""Features of a token, about as many as in Gemma Scope's SAEs."""


@dataclass(frozen=True)
class Shape:
    """What a random file is made of."""

    name: str
    architecture: str
    width: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int | None = None
    """None for the tokenizer's own."""

    @property
    def is_gemma(self) -> bool:
        return self.architecture == "gemma2"


SHAPES = (
    Shape("llama-1.1b-shape", "llama", 2048, 22, 5632, 32, 4, 64),  # TinyLlama's
    Shape("gemma-2-2b-shape", "gemma2", 2304, 26, 9216, 8, 4, 256, 256_000),  # 2.6 billion weights
)


def with_instrument(
    engine: Engine, prompt: Prompt, ranking: Ranking, stats: Any, tokens: int
) -> Iterator[None]:
    """An answer's tokens with their features, ranked, as the JSON of their events."""
    for step in engine.generate(prompt, Sampling(max_tokens=tokens, temperature=0)):
        chosen = select(step.acts, ranking, stats)
        event = {
            "index": chosen.indices.tolist(),
            "activation": chosen.activations.tolist(),
            "l0": step.acts.l0,
        }
        json.dumps({"token": step.text, "token_id": step.token_id, "fvu": step.fvu, "top_features": event})
        yield


@contextmanager
def own_context(path: Path, threads: int) -> Iterator[Any]:
    """The file opened as llama.cpp opens it when nothing else is said, but for the number of threads."""
    library = llama()
    model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
    wanted = library.llama_context_default_params()
    wanted.n_ctx, wanted.n_threads, wanted.n_threads_batch = POSITIONS, threads, threads
    context = library.llama_init_from_model(model, wanted)
    yield context
    library.llama_free(context)
    library.llama_model_free(model)


@contextmanager
def same_weights(backend: LlamaCppBackend) -> Iterator[Any]:
    """A context without a callback on the weights that the backend has in memory."""
    context = backend._open_context(POSITIONS)
    yield context
    llama().llama_free(context)


def bare(context: Any, prompt: Prompt) -> Iterator[None]:
    """llama.cpp's own loop."""
    library = llama()
    sampler = library.llama_sampler_init_greedy()
    tokens = (library.llama_token * len(prompt.ids))(*prompt.ids)  # the batch points to them
    batch = library.llama_batch_get_one(tokens, len(tokens))
    while True:
        if library.llama_decode(context, batch):
            raise RuntimeError("llama.cpp could not decode")
        yield
        tokens = (library.llama_token * 1)(library.llama_sampler_sample(sampler, context, -1))
        batch = library.llama_batch_get_one(tokens, 1)


def alone(backend: LlamaCppBackend, prompt: Prompt) -> Iterator[None]:
    """The backend without an SAE: passes whose residual is taken, and the likeliest token."""
    backend.rewind(0)
    ids: Sequence[int] = prompt.ids
    while True:
        forward = backend.forward(ids)
        yield
        ids = [int(forward.logits.numpy().argmax())]


def in_turns(without: Iterator[None], others: Iterator[None], tokens: int) -> list[float]:
    """Seconds of each of `tokens` tokens, of either loop in turns, after the prompt and one token of both.

    They are milliseconds apart: a machine that is slower for a while is so for both.
    """
    for loop in (without, others, without, others):
        next(loop)
    gc.collect()
    seconds = []
    for token in range(tokens):
        loop = others if is_on(token) else without
        began = time.perf_counter()
        next(loop)
        seconds.append(time.perf_counter() - began)
    return seconds


def random_model(shape: Shape, path: Path, source: Path) -> None:
    """A file in Q4_0 with the tokenizer of the file `source`, filled up with tokens that none is."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_block_count(shape.layers)
    writer.add_context_length(2048)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    if shape.is_gemma:
        writer.add_key_length(shape.head)
        writer.add_value_length(shape.head)
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
        writer.add_sliding_window(4096)
    more = {"tokens": lambda row: f"<unused {row}>", "token_type": lambda _: gguf.TokenType.UNUSED.value}
    vocabulary = shape.vocabulary or 0
    for name, field in gguf.GGUFReader(source).fields.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            kind, *inner = field.types
            value = field.contents()
            if fill := more.get(name.rpartition(".")[2]):
                value += map(fill, range(len(value), vocabulary))
                vocabulary = max(vocabulary, len(value))
            writer.add_key_value(name, value, kind, sub_type=inner[0] if inner else None)
    width, hidden = shape.width, shape.hidden
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
    shapes = {
        "attn_q": (queries, width),
        "attn_k": (keys, width),
        "attn_v": (keys, width),
        "attn_output": (width, queries),
        "ffn_gate": (hidden, width),
        "ffn_up": (hidden, width),
        "ffn_down": (width, hidden),
    }
    layers = range(shape.layers)
    names = {f"blk.{layer}.{name}.weight": sides for layer in layers for name, sides in shapes.items()}
    for name, sides in {"token_embd.weight": (vocabulary, width), **names}.items():
        writer.add_tensor(name, q4_0(random, *sides), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    of_a_block = [
        "attn_norm",
        "ffn_norm",
        *(["post_attention_norm", "post_ffw_norm"] if shape.is_gemma else []),
    ]
    norms = [f"blk.{layer}.{name}.weight" for layer in layers for name in of_a_block]
    for name in ("output_norm.weight", *norms):
        writer.add_tensor(name, np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def q4_0(random: np.random.Generator, rows: int, columns: int) -> Any:
    """Random blocks: a scale in half precision, and 32 weights of 4 bits."""
    blocks = random.integers(0, 256, (rows * columns // 32, 18), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(1 / (5 * columns**0.5)).tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def random_sae(residual: torch.Tensor) -> SparseAutoencoder:
    """FEATURES random directions, the threshold where ACTIVE of them pass on `residual` [n, d_model]."""
    generator = torch.Generator().manual_seed(0)
    width = residual.shape[1]
    directions = torch.nn.functional.normalize(torch.randn(FEATURES, width, generator=generator), dim=1)
    least = (residual @ directions.T).topk(ACTIVE).values[:, -1].mean()
    return SparseAutoencoder(
        W_enc=directions.T.contiguous(),
        b_enc=torch.zeros(FEATURES),
        threshold=torch.full((FEATURES,), float(least)),
        W_dec=directions,
        b_dec=torch.zeros(width),
    )


def figures(
    name: str,
    engine: Engine,
    ranking: Ranking,
    stats: Any,
    tokens: int,
    rounds: int,
    at_least: float,
    **details: Any,
) -> list[Figure]:
    """With the whole instrument against both, and with the residual alone."""
    backend = engine.backend
    assert isinstance(backend, LlamaCppBackend)
    prompt = engine.prepare("The city of Paris is known for")

    def whole() -> Iterator[None]:
        return with_instrument(engine, prompt, ranking, stats, tokens)

    def residual() -> Iterator[None]:
        return alone(backend, prompt)

    def own() -> Any:
        return own_context(backend.path, torch.get_num_threads())

    def same() -> Any:
        return same_weights(backend)

    def measured(without: Callable[[], Any], others: Callable[[], Iterator[None]]) -> list[list[float]]:
        answers = []
        for _ in range(rounds + 1):
            with without() as context:
                answers.append(in_turns(bare(context, prompt), others(), tokens))
        return answers[1:]

    instrument, tap = "the instrument", "the residual taken and no SAE"
    by_itself, beside = (
        "llama.cpp's own decode, same file and threads",
        "the same, on weights in large pages too",
    )
    with patch.object(ChatTokenizer, "end_ids", frozenset()):  # no answer ends early
        sides = (
            ("", instrument, by_itself, measured(own, whole), at_least),
            ("-same-weights", instrument, beside, measured(same, whole), None),
            ("-residual", tap, beside, measured(same, residual), None),
        )
    details |= {"threads": torch.get_num_threads()}
    return [
        Figure(
            f"llamacpp-{name}{suffix}",
            f"decode by llama.cpp with {what}, {name}",
            against,
            Spread.of([kept(seconds) for seconds in answers]),
            "x",
            at_least=promised,
            details={
                "without_tokens_per_s": tokens_per_s(answers, with_it=False),
                "with_tokens_per_s": tokens_per_s(answers, with_it=True),
                **details,
            },
        )
        for suffix, what, against, answers, promised in sides
    ]


def tokens_per_s(answers: Sequence[Sequence[float]], *, with_it: bool) -> float:
    """By the median token of one side."""
    return round(1 / median(s for one in answers for i, s in enumerate(one) if is_on(i) == with_it), 1)


def by_torch(tokens: int) -> float:
    """The same pairing by torch in float32."""
    scope = neuroscope.load(PAIRING)
    prompt = scope.engine.prepare("The city of Paris is known for")
    began = time.perf_counter()
    for _ in with_instrument(scope.engine, prompt, scope.ranking, scope.known.stats, tokens):
        pass
    return round(tokens / (time.perf_counter() - began), 1)


def measure(rounds: int) -> list[Figure]:
    small = neuroscope.load(PAIRING, overrides={"backend": "llamacpp"})
    backend = small.engine.backend
    assert isinstance(backend, LlamaCppBackend)
    found = [
        *figures(
            "smollm2", small.engine, small.ranking, small.known.stats, SMALL, rounds, 0.90,
            torch_float32_tokens_per_s=by_torch(40), weights="q4_1",
        )
    ]  # fmt: skip
    source, chat = backend.path, small.engine.chat
    backend.close()
    for shape in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "random.gguf"
            random_model(shape, path, source)
            found += large(shape, path, chat, rounds)
    return found


def large(shape: Shape, path: Path, chat: ChatTokenizer, rounds: int) -> list[Figure]:
    backend = LlamaCppBackend(path, LAYER)
    backend.rewind(0)
    sae = random_sae(backend.forward(list(range(100, 160))).residual[1:].float())
    engine = Engine(backend, sae, chat)
    ranking = Ranking(filter="none", threshold=0.5, top_k=10)
    megabytes = round(path.stat().st_size / 1e6)
    found = figures(shape.name, engine, ranking, None, LARGE, rounds, 0.95, file_mb=megabytes, weights="q4_0")
    backend.close()
    return found
