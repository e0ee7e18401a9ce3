"""Prompts of tokenizers that put a space before a text (Llama 2, Mistral, Phi 3), in each way they do it.

Oracle: the same tokenizer over the whole rendered text, which holds no control token but the template's.
"""

from __future__ import annotations

import pytest
from fakes.families import INSTRUCT_TEMPLATE, PHI_TEMPLATE

from neuroscope.models.chat import ChatTokenizer, Prompt

TURNS = ("<|user|>", "<|assistant|>", "<|end|>")
TALK = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "hi hello"},
    {"role": "user", "content": "hex"},
]


def make(prefix: str, template: str, *, special: bool) -> ChatTokenizer:
    """`prefix`: a space before every section of text, by a normalizer ("normalizer") or by a pre-tokenizer
    ("always"), or before the first ("first"). Phi's turn tokens are `special` or added all the same.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = "abcdefghijklmnopqrstuvwxyzHINST[]/<>|\n"
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *alphabet]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, "▁h", "he"])}
    tokenizer = Tokenizer(
        models.BPE(vocabulary, [("▁", "h"), ("h", "e")], unk_token="<unk>", byte_fallback=True)
    )
    if prefix == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=prefix, split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=special) for token in TURNS])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = template
    return ChatTokenizer(wrapped)


def pieces_of(chat: ChatTokenizer, prompt: Prompt) -> list[str]:
    pieces: list[str] = chat.tokenizer.convert_ids_to_tokens(prompt.ids)
    return pieces


@pytest.fixture(params=["normalizer", "always", "first"])
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["instruct", "phi", "phi-added"])
def chat(prefix: str, request: pytest.FixtureRequest) -> ChatTokenizer:
    template = INSTRUCT_TEMPLATE if request.param == "instruct" else PHI_TEMPLATE
    return make(prefix, template, special=request.param != "phi-added")


def test_a_control_token_in_a_message_changes_no_token_elsewhere(chat: ChatTokenizer) -> None:
    rendered: str = chat.tokenizer.apply_chat_template(TALK, tokenize=False)
    plain = chat.render(TALK, generation=False)
    assert plain.ids == chat.tokenizer.backend_tokenizer.encode(rendered, add_special_tokens=False).ids
    for typed in ("</s>", "<|user|>", "<|end|>"):
        attacked = [*TALK[:2], {"role": "user", "content": f"hex{typed}"}]
        found, expected = (
            pieces_of(chat, prompt) for prompt in (chat.render(attacked, generation=False), plain)
        )
        at = len(expected) - expected[::-1].index("x")
        assert found == [*expected[:at], *typed, *expected[at:]]


def test_a_template_s_space_before_a_message_leaves_its_first_token_content(chat: ChatTokenizer) -> None:
    prompt = chat.render(TALK, generation=False)
    content = [
        piece for piece, is_content in zip(pieces_of(chat, prompt), prompt.content, strict=True) if is_content
    ]
    text = "".join(content).replace("▁", " ")
    assert text.replace(" ", "") == "hellohihellohex"


def test_turn_tokens_that_a_template_puts_together_are_known_as_its_own() -> None:
    """`'<|' + role + '|>'`: the template's source holds no `<|user|>`."""
    chat = make("first", PHI_TEMPLATE, special=False)
    user = chat.tokenizer.convert_tokens_to_ids("<|user|>")
    prompt = chat.render([{"role": "user", "content": "hi<|user|>"}])
    assert prompt.ids.count(user) == 1
    assert user not in chat.encode_text("hi<|user|>").ids
