"""One tiny random model for each family that the hook finds by structure, in the layout of the family's releases.

`save_family(name, folder)` writes a whole model folder (config, weights, generation config, tokenizer), so that
what loads a real release loads it. The special tokens are the family's own, as its releases give them: which has
a BOS, which puts it before a text, and which has no padding token. No two layers or norms are alike: gains and
biases are random too, which transformers leaves at one and zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fakes.tiny import CHATML_TEMPLATE, GEMMA_TEMPLATE, VOCABULARY, save_tokenizer

D_MODEL = 32
LAYERS = 4
CONTEXT = 160
WINDOW = 24
"""Positions that a layer with a sliding window sees, the token itself included."""

_WIDTHS: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": D_MODEL,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
}
GROUPED: dict[str, Any] = {**_WIDTHS, "num_key_value_heads": 2}
"""Sizes of a family whose queries share keys and values in pairs."""

_GEMMA: dict[str, Any] = {**GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": WINDOW}
_ALTERNATING = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]

INSTRUCT_TEMPLATE = """\
{{ bos_token }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}
{%- else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}
{%- endfor %}"""

PHI_TEMPLATE = """\
{%- for message in messages %}
{{- '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"""


@dataclass(frozen=True)
class Tokens:
    """Special tokens of a family's tokenizer."""

    bos: str | None
    eos: str
    pad: str | None
    adds_bos: bool = False
    """Whether the tokenizer itself puts the BOS before a text."""
    others: tuple[str, ...] = ()
    template: str | None = None


@dataclass(frozen=True)
class Family:
    """How one family's releases look."""

    config: Callable[[Any], Any]
    """From the `transformers` module to a config."""
    tokens: Tokens
    windowed: bool = False
    """Some layers see WINDOW positions only."""
    learned_positions: bool = False
    """Positions are rows of a table, with none beyond the context."""
    text: Callable[[Any], Any] = field(default=lambda model: model.base_model)
    """From the loaded model to the module that embeds, runs the layers and normalises."""


_GEMMA_TOKENS = Tokens("<bos>", "<eos>", "<pad>", True, ("<start_of_turn>", "<end_of_turn>"), GEMMA_TEMPLATE)
_QWEN_TOKENS = Tokens(None, "<|im_end|>", "<|endoftext|>", False, ("<|im_start|>",), CHATML_TEMPLATE)
_GPT_TOKENS = Tokens("<|endoftext|>", "<|endoftext|>", None)


def _gemma3_text(hf: Any) -> Any:
    return hf.Gemma3TextConfig(**_GEMMA, layer_types=_ALTERNATING)


def _gemma3_nested(hf: Any) -> Any:
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return hf.Gemma3Config(
        text_config=_gemma3_text(hf).to_dict(),
        vision_config=hf.SiglipVisionConfig(**vision, image_size=16, patch_size=8).to_dict(),
        mm_tokens_per_image=4,
    )


def _gpt2(hf: Any) -> Any:
    sizes = {"n_embd": D_MODEL, "n_layer": LAYERS, "n_head": 4, "n_positions": CONTEXT}
    return hf.GPT2Config(**sizes, vocab_size=VOCABULARY, initializer_range=0.3)


FAMILIES: dict[str, Family] = {
    "gemma2": Family(
        # a cap that the scores of so small a model reach
        lambda hf: hf.Gemma2Config(**_GEMMA, attn_logit_softcapping=2.0),
        _GEMMA_TOKENS,
        windowed=True,
    ),
    "gemma3": Family(_gemma3_text, _GEMMA_TOKENS, windowed=True),
    "gemma3_nested": Family(
        _gemma3_nested, _GEMMA_TOKENS, windowed=True, text=lambda model: model.model.language_model
    ),
    "llama": Family(
        lambda hf: hf.LlamaConfig(**GROUPED, tie_word_embeddings=False),
        Tokens("<s>", "</s>", None, True),
    ),
    "qwen2": Family(lambda hf: hf.Qwen2Config(**GROUPED, tie_word_embeddings=True), _QWEN_TOKENS),
    "qwen3": Family(lambda hf: hf.Qwen3Config(**GROUPED, head_dim=16), _QWEN_TOKENS),
    "mistral": Family(
        lambda hf: hf.MistralConfig(**GROUPED, sliding_window=WINDOW),
        Tokens("<s>", "</s>", None, True, (), INSTRUCT_TEMPLATE),
        windowed=True,
    ),
    "phi": Family(lambda hf: hf.PhiConfig(**_WIDTHS, partial_rotary_factor=0.5), _GPT_TOKENS),
    "phi3": Family(
        lambda hf: hf.Phi3Config(**GROUPED, sliding_window=WINDOW, pad_token_id=0),
        Tokens(
            "<s>",
            "<|endoftext|>",
            "<|endoftext|>",
            False,
            ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
            PHI_TEMPLATE,
        ),
        windowed=True,
    ),
    "gpt2": Family(_gpt2, _GPT_TOKENS, learned_positions=True),
    "gpt_neox": Family(lambda hf: hf.GPTNeoXConfig(**_WIDTHS, rotary_pct=0.5), _GPT_TOKENS),
}


def save_family(name: str, folder: Path, *, layers: int = LAYERS) -> Path:
    """A tiny model of the family `name` of FAMILIES in `folder`, as its releases lie on the hub."""
    import transformers

    family = FAMILIES[name]
    tokens = family.tokens
    named = [token for token in (tokens.pad, tokens.eos, tokens.bos) if token is not None]
    special = list(dict.fromkeys([*named, *tokens.others]))
    save_tokenizer(
        folder,
        bos=tokens.bos,
        eos=tokens.eos,
        pad=tokens.pad,
        adds_bos=tokens.adds_bos,
        special=special,
        template=tokens.template,
    )
    config = family.config(transformers)
    text = config.get_text_config(decoder=True)
    for owner in (config, text):
        owner.pad_token_id = None if tokens.pad is None else special.index(tokens.pad)
        owner.eos_token_id = special.index(tokens.eos)
        owner.bos_token_id = None if tokens.bos is None else special.index(tokens.bos)
    if layers != LAYERS:
        text.num_hidden_layers = layers
        if getattr(text, "layer_types", None) is not None:
            text.layer_types = [text.layer_types[i % LAYERS] for i in range(layers)]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # gains and biases
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder
