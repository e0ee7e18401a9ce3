"""From messages or text to token ids, with every position marked as content or scaffold.

What messages may be is in `conversation`, how control tokens inside them stay text in `control_tokens`, the
way back from ids to text in `text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jinja2
from tokenizers import Encoding, Tokenizer

from neuroscope.errors import PromptError, shown
from neuroscope.models.control_tokens import ControlTokens, Guards, content_spans
from neuroscope.models.conversation import SystemTurns, Turn, clean_text, fold, read_messages
from neuroscope.models.pieces import PieceEncoder, encode_text
from neuroscope.models.text import Detokenizer, TokenBytes

_PROBE = "neuroscopeprobe"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads."""

    ids: list[int]
    content: list[bool]
    """False for BOS, role headers and turn markers: what never enters statistics, examples or labels."""


class ChatTokenizer:
    """A tokenizer, its chat template and its control tokens.

    `end_ids` adds to the tokens that end an answer, such as those of the model's generation config.
    """

    def __init__(self, tokenizer: Any, *, end_ids: Iterable[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.token_bytes = TokenBytes(tokenizer.backend_tokenizer)
        self.bos_id: int | None = tokenizer.bos_token_id
        self.vocabulary: int = len(tokenizer)
        self._more_end_ids = frozenset(end_ids)
        self._control = ControlTokens(tokenizer, self._written_by_template())
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._backend.no_truncation()

    def render(self, messages: Sequence[Any], *, generation: bool = True) -> Prompt:
        """The conversation through the model's chat template, with exactly one BOS.

        With `generation`, it ends where the model's answer begins. Raises PromptError for messages that
        cannot be read or that the template refuses.
        """
        turns = fold(read_messages(messages), self._system_turns)
        contents = [turn.text for turn in turns]
        guards = Guards.unused_in(contents)
        broken = [self._control.break_up(text, guards) for text in contents]
        rendered = self._apply(
            [Turn(t.role, text) for t, text in zip(turns, broken, strict=True)], generation
        )
        mark = guards.mark
        marked = [Turn(turn.role, turn.text and f"{mark}{i}{mark}") for i, turn in enumerate(turns)]
        literals = re.split(f"{mark}([0-9]+){mark}", self._apply(marked, generation))
        flags = bytearray(len(rendered))
        for start, end in content_spans(rendered, literals, broken):
            flags[start:end] = b"\x01" * (end - start)
        if broken == contents:
            if self._backend.encode_special_tokens:  # left so by a call with split_special_tokens=True
                self._backend.encode_special_tokens = False
            return self._with_one_bos(_encode(self._backend, rendered, flags))
        return self._with_one_bos(self._encode_pieces(rendered, flags, guards))

    def encode_text(self, text: str, *, bos: bool = True) -> Prompt:
        """Plain text, control tokens in it as text, after one BOS if `bos` and the model has one."""
        text = clean_text(text)
        guards = Guards.unused_in([text])
        broken = self._control.break_up(text, guards)
        flags = bytearray(b"\x01") * len(broken)
        has_none = broken == text
        prompt = (
            _encode(self._backend, text, flags) if has_none else self._encode_pieces(broken, flags, guards)
        )
        if not bos or self.bos_id is None:
            return prompt
        return Prompt([self.bos_id, *prompt.ids], [False, *prompt.content])

    def from_ids(self, ids: Sequence[int]) -> Prompt:
        """A prompt of just these tokens. Raises PromptError for an id that the tokenizer does not know."""
        unknown = [token for token in ids if not 0 <= token < self.vocabulary]
        if unknown:
            raise PromptError(
                f"prompt holds token {shown(unknown[0])}; this model's are 0 to {self.vocabulary - 1}."
            )
        return Prompt(list(ids), [token not in self._control.special_ids for token in ids])

    def encode_ids(self, ids: Sequence[int]) -> Prompt:
        """A piece of text that is token ids already, after one BOS if the model has one. Raises PromptError."""
        prompt = self.from_ids(ids)
        if self.bos_id is None:
            return prompt
        return Prompt([self.bos_id, *prompt.ids], [False, *prompt.content])

    def text_of(self, prompt: Prompt) -> str:
        """The text of its tokens, control tokens among it."""
        detokenizer = self.detokenizer(show_special=True)
        return "".join(detokenizer.step(token) for token in prompt.ids) + detokenizer.finish()

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer: EOS, and what the template writes after one."""
        ends = {*self._more_end_ids, self.tokenizer.eos_token_id}
        if self.tokenizer.chat_template is not None:
            conversation = [Turn("user", "a"), Turn("assistant", _PROBE)]
            ends.add(self._control.first_in(self._apply(conversation, False).partition(_PROBE)[2]))
        return frozenset(end for end in ends if end is not None)

    @cached_property
    def adds_bos(self) -> bool:
        """The tokenizer itself puts a BOS before a text."""
        return self.bos_id is not None and self.tokenizer.encode("a")[:1] == [self.bos_id]

    @cached_property
    def _pieces(self) -> PieceEncoder:
        return PieceEncoder(self._backend, self._control.ids)

    def detokenizer(self, *, show_special: bool = False) -> Detokenizer:
        """A fresh incremental way back to text; special tokens add none unless shown."""
        return Detokenizer(self.token_bytes, frozenset() if show_special else self._control.special_ids)

    @cached_property
    def _system_turns(self) -> SystemTurns:
        """Where the template takes a system turn, found by trying."""
        system, user = Turn("system", _PROBE), Turn("user", "a")
        if not self._shows_probe([system, user]):
            return "never"
        return "anywhere" if self._shows_probe([user, Turn("assistant", "a"), system, user]) else "first"

    def _written_by_template(self) -> str:
        """The template's source, and what it makes of conversations with each role."""
        if self.tokenizer.chat_template is None:
            return ""
        talk = [Turn("user", "a"), Turn("assistant", "a"), Turn("user", "a")]
        written = [str(self.tokenizer.chat_template)]
        for turns in (talk, [Turn("system", "a"), *talk]):
            with suppress(PromptError):
                written.append(self._apply(turns, True))
        return "\n".join(written)

    def _shows_probe(self, turns: list[Turn]) -> bool:
        try:
            return _PROBE in self._apply(turns, True)
        except PromptError:
            return False

    def _apply(self, turns: list[Turn], generation: bool) -> str:
        if self.tokenizer.chat_template is None:
            raise PromptError(
                "This model has no chat template. Send it plain text instead (POST /v1/completions)."
            )
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        try:
            rendered: str = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=generation
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise PromptError(f"The model's chat template refuses this conversation: {error}") from error
        return rendered

    def _encode_pieces(self, rendered: str, flags: bytearray, guards: Guards) -> Prompt:
        """Ids of `rendered`, cut at its unbroken control tokens; what lies between them is text."""
        ids: list[int] = []
        content: list[bool] = []
        for start, end, control in self._control.cut(rendered):
            if control is not None:
                ids.append(control)
                content.append(False)
                continue
            kept = [i for i in range(start, end) if rendered[i] != guards.inside]
            text = "".join(rendered[i] for i in kept)
            encoding = self._pieces.encode(text, at_start=start == 0)
            ids += encoding.ids
            content += _content_of(encoding, text, bytearray(flags[i] for i in kept))
        return Prompt(ids, content)

    def _with_one_bos(self, prompt: Prompt) -> Prompt:
        ids, content = prompt.ids, prompt.content
        if self.bos_id is None:
            return prompt
        while ids[:2] == [self.bos_id, self.bos_id]:
            ids, content = ids[1:], content[1:]
        if ids[:1] != [self.bos_id] and self.adds_bos:
            ids, content = [self.bos_id, *ids], [False, *content]
        return Prompt(ids, content)


def _encode(backend: Tokenizer, text: str, flags: bytearray) -> Prompt:
    """Ids of `text`; `flags[i]` is 1 where character i is content."""
    encoding = encode_text(backend, text)
    return Prompt(encoding.ids, _content_of(encoding, text, flags))


def _content_of(encoding: Encoding, text: str, flags: bytearray) -> list[bool]:
    return [_is_content(text, flags, start, end) for start, end in encoding.offsets]


def _is_content(text: str, flags: bytearray, start: int, end: int) -> bool:
    """All characters of the token are content, but for a template's space that it begins with (`[INST] Hello`).

    A token without any character (a trimmed space) is as what stands before.
    """
    own = flags[start:end] or flags[max(end - 1, 0) : end]
    space = 0
    while space < len(own) and not own[space] and text[start + space].isspace():
        space += 1
    own = own[space:]
    return bool(own) and 0 not in own
