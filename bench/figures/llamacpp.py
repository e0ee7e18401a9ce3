"""Decoding by llama.cpp with the instrument, against llama.cpp's own loop on the same file with as many threads.

With: the backend, the SAE, ranking and the event as JSON, as the engine and the server give them, greedy. Without:
llama.cpp's own functions alone, the likeliest token taken by its greedy sampler, no callback. SmolLM2-135M is real;
the larger model is random, its blocks of Q4_0 written straight into a file, with a random SAE of 16,384 features.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import gguf
import numpy as np
import torch

import neuroscope
from bench.figure import Figure, alternate, ratio
from neuroscope.engine import Engine, Sampling
from neuroscope.models.chat import ChatTokenizer, Prompt
from neuroscope.models.llamacpp import LlamaCppBackend
from neuroscope.models.llamacpp_library import llama
from neuroscope.ranking import Ranking, select
from neuroscope.sae import SparseAutoencoder

PAIRING = "smollm2-135m"
SMALL, LARGE = 120, 24
"""Tokens of one run."""
WIDTH, LAYERS, HIDDEN, HEADS, KV_HEADS = 2048, 22, 5632, 32, 4
"""TinyLlama's shape, with SmolLM2's vocabulary: 1.1 billion weights."""
FEATURES = 16_384
ACTIVE = 70
"""Features of a token, about as many as in Gemma Scope's SAEs."""


def with_instrument(engine: Engine, prompt: Prompt, ranking: Ranking, stats: Any, tokens: int) -> None:
    """An answer's tokens with their features, ranked, as the JSON of their events."""
    sampling = Sampling(
        max_tokens=tokens, temperature=0, logit_bias=dict.fromkeys(engine.chat.end_ids, -1000000000.0)
    )
    for step in engine.generate(prompt, sampling):
        chosen = select(step.acts, ranking, stats)
        event = {
            "index": chosen.indices.tolist(),
            "activation": chosen.activations.tolist(),
            "l0": step.acts.l0,
        }
        json.dumps({"token": step.text, "token_id": step.token_id, "fvu": step.fvu, "top_features": event})


def bare(backend: LlamaCppBackend, prompt: Prompt, tokens: int) -> Callable[[], None]:
    """llama.cpp's own loop in a context of its own."""
    library = llama()
    context = backend._open_context(2048)
    sampler = library.llama_sampler_init_greedy()
    first = (library.llama_token * len(prompt.ids))(*prompt.ids)

    def run() -> None:
        library.llama_memory_clear(library.llama_get_memory(context), False)
        batch = library.llama_batch_get_one(first, len(first))
        for _ in range(tokens + 1):  # the engine's last token runs too
            if library.llama_decode(context, batch):
                raise RuntimeError("llama.cpp could not decode")
            token = library.llama_sampler_sample(sampler, context, -1)
            batch = library.llama_batch_get_one((library.llama_token * 1)(token), 1)

    return run


def random_model(path: Path, source: Path) -> None:
    """A Llama of WIDTH and LAYERS in Q4_0 with the tokenizer of the file `source`."""
    random = np.random.default_rng(0)
    read = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    vocabulary = len(read.fields["tokenizer.ggml.tokens"].data)
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    for name, field in read.fields.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, sub_type=inner[0] if inner else None)
    kv = WIDTH // HEADS * KV_HEADS
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (kv, WIDTH),
        "attn_v": (kv, WIDTH),
        "attn_output": (WIDTH, WIDTH),
    }
    shapes |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    names = {f"blk.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in shapes.items()}
    for name, shape in {
        "token_embd.weight": (vocabulary, WIDTH),
        "output.weight": (vocabulary, WIDTH),
        **names,
    }.items():
        writer.add_tensor(name, q4_0(random, *shape), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    norms = [f"blk.{layer}.{name}_norm.weight" for layer in range(LAYERS) for name in ("attn", "ffn")]
    for name in ("output_norm.weight", *norms):
        writer.add_tensor(name, np.ones(WIDTH, np.float32))
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
    """FEATURES random directions, the threshold where ACTIVE of them pass on `residual` [n, WIDTH]."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(FEATURES, WIDTH, generator=generator), dim=1)
    least = (residual @ directions.T).topk(ACTIVE).values[:, -1].mean()
    return SparseAutoencoder(
        W_enc=directions.T.contiguous(),
        b_enc=torch.zeros(FEATURES),
        threshold=torch.full((FEATURES,), float(least)),
        W_dec=directions,
        b_dec=torch.zeros(WIDTH),
    )


def alone(backend: LlamaCppBackend, prompt: Prompt, tokens: int) -> None:
    """The backend without an SAE: passes whose residual is taken, and the likeliest token."""
    backend.rewind(0)
    forward = backend.forward(prompt.ids)
    for _ in range(tokens):
        forward = backend.forward([int(forward.logits.argmax())])


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
    """With the whole instrument, and with the residual alone."""
    backend = engine.backend
    assert isinstance(backend, LlamaCppBackend)
    prompt = engine.prepare("The city of Paris is known for")
    without = bare(backend, prompt, tokens)
    whole = alternate(without, lambda: with_instrument(engine, prompt, ranking, stats, tokens), rounds)
    taken = alternate(without, lambda: alone(backend, prompt, tokens), rounds)
    details |= {"threads": torch.get_num_threads()}
    return [
        Figure(
            f"llamacpp-{name}{suffix}",
            f"decode by llama.cpp with {what}, {name}",
            "llama.cpp's own decode, same file and threads",
            ratio(pairs),
            "x",
            at_least=promised,
            details={
                "without_tokens_per_s": round(tokens / median(one for one, _ in pairs), 1),
                "with_tokens_per_s": round(tokens / median(other for _, other in pairs), 1),
                **details,
            },
        )
        for suffix, what, pairs, promised in (
            ("", "the instrument", whole, at_least),
            ("-residual", "the residual taken and no SAE", taken, None),
        )
    ]


def torch_tokens_per_s(tokens: int) -> float:
    """The same pairing by torch in float32."""
    scope = neuroscope.load(PAIRING)
    prompt = scope.engine.prepare("The city of Paris is known for")
    began = time.perf_counter()
    with_instrument(scope.engine, prompt, scope.ranking, scope.known.stats, tokens)
    return round(tokens / (time.perf_counter() - began), 1)


def measure(rounds: int) -> list[Figure]:
    small = neuroscope.load(PAIRING, overrides={"backend": "llamacpp"})
    backend = small.engine.backend
    assert isinstance(backend, LlamaCppBackend)
    found = [
        *figures(
            "smollm2", small.engine, small.ranking, small.known.stats, SMALL, rounds, 0.90,
            torch_float32_tokens_per_s=torch_tokens_per_s(40), weights="q4_1",
        )
    ]  # fmt: skip
    source, chat = backend.path, small.engine.chat
    backend.close()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        random_model(path, source)
        found += large(path, chat, rounds)
    return found


def large(path: Path, chat: ChatTokenizer, rounds: int) -> list[Figure]:
    backend = LlamaCppBackend(path, LAYERS // 2)
    backend.rewind(0)
    sae = random_sae(backend.forward(list(range(100, 160))).residual[1:].float())
    engine = Engine(backend, sae, chat)
    ranking = Ranking(filter="none", threshold=0.5, top_k=10)
    megabytes = round(path.stat().st_size / 1e6)
    return figures("1b", engine, ranking, None, LARGE, rounds, 0.95, file_mb=megabytes, weights="q4_0")
