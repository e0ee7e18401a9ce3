"""Tiny random models and SAEs in the layouts of the real ones, so that the code that loads those loads these.

The tokenizers are byte-level with a few merges, so that characters split over tokens; the chat templates are
Gemma 2's, Llama 3's and ChatML, as their documentation gives them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

D_MODEL = 32
D_SAE = 64
LAYERS = 3
TINY_LAYER = 1
VOCABULARY = 320
CONTEXT = 512

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": D_MODEL,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "initializer_range": 0.3,
}

GEMMA_TEMPLATE = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{- '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

LLAMA_TEMPLATE = """\
{{ bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim }}
{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

CHATML_TEMPLATE = """\
{%- for message in messages %}
{%- if loop.first and message['role'] != 'system' %}
{{- '<|im_start|>system\nYou are helpful<|im_end|>\n' }}
{%- endif %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

_MERGED = (
    "the user said hello and the model said the same thing to the user, then they both said goodbye. " * 4
)


def save_tokenizer(
    directory: Path,
    *,
    bos: str | None,
    eos: str,
    special: list[str],
    template: str | None,
    pad: str | None = "<pad>",
    adds_bos: bool = True,
) -> None:
    """A byte-level BPE tokenizer of VOCABULARY tokens, its special tokens first; `adds_bos` before a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([_MERGED], trainer)
    if bos is not None and adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    tokenizer.save_pretrained(directory)


def save_model(config: Any, directory: Path) -> None:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)


def save_tiny_gemma(directory: Path) -> Path:
    """A Gemma 2 of 3 layers with a sliding window of 40."""
    from transformers import Gemma2Config

    special = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"]
    save_tokenizer(directory, bos="<bos>", eos="<eos>", special=special, template=GEMMA_TEMPLATE)
    save_model(Gemma2Config(**_SIZES, head_dim=8, query_pre_attn_scalar=8, sliding_window=40), directory)
    return directory


def save_tiny_llama(directory: Path) -> Path:
    """A Llama of 3 layers."""
    from transformers import LlamaConfig

    headers = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    special = ["<pad>", "<|end_of_text|>", "<|begin_of_text|>", *headers]
    save_tokenizer(directory, bos=special[2], eos=special[1], special=special, template=LLAMA_TEMPLATE)
    save_model(LlamaConfig(**_SIZES), directory)
    return directory


def save_tiny_sae(path: Path) -> Path:
    """A random JumpReLU SAE in Gemma Scope's NPZ layout; its decoder is the encoder's transpose."""
    random = np.random.default_rng(0)
    W_dec = random.standard_normal((D_SAE, D_MODEL)).astype(np.float32)
    W_dec /= np.linalg.norm(W_dec, axis=1, keepdims=True)
    b_dec, threshold = np.zeros(D_MODEL, np.float32), np.full(D_SAE, 2.0, np.float32)
    b_enc = random.standard_normal(D_SAE).astype(np.float32)
    np.savez(path, W_enc=W_dec.T.copy(), W_dec=W_dec, b_enc=b_enc, b_dec=b_dec, threshold=threshold)
    return path
