"""Errors for the person who can mend them: each message names what was found, what is accepted, the next command.

Only expected failures live here; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import math
from typing import Any

SHOWN_CHARACTERS = 60


def made_anew(command: str = "snakemake --cores 4 labels") -> str:
    """What mends a file that cannot be used. Snakemake looks at times, not at bytes, and would leave it there."""
    return f"Delete it, then make it anew with `{command}`."


def shown(value: Any) -> str:
    """A value that someone sent, in JSON's words and cut short: what is refused may be a megabyte long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return "too large for a number" if math.isinf(value) else "not a number"
    if isinstance(value, dict | list | tuple):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, str):
        return repr(value) if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]!r}..."
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


class NeuroscopeError(Exception):
    """Base of every expected failure. The command line prints its message without a traceback, exit code 1."""


class ConfigError(NeuroscopeError):
    """A setting, flag or pairing file is unknown, of the wrong type or out of range."""


class SourceError(NeuroscopeError):
    """A model, SAE, corpus or wheel could not be fetched or is not what it should be."""


class SAEFormatError(NeuroscopeError):
    """An SAE file is not of the format it is read as, or holds values that cannot be right."""


class ModelError(NeuroscopeError):
    """A language model cannot be loaded, or does not fit the SAE or the layer asked for."""


class PromptError(NeuroscopeError):
    """A conversation cannot be turned into tokens: a role, a part or a template refuses."""


class SamplingError(PromptError):
    """An option of sampling does not fit the model."""

    def __init__(self, option: str, message: str) -> None:
        self.option = option
        super().__init__(message)


class ContextOverflowError(PromptError):
    """The prompt, with the tokens asked for, does not fit the model's context."""

    def __init__(self, prompt_tokens: int, max_tokens: int, context_length: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_length = context_length
        super().__init__(self.sentence("the prompt", "max_tokens"))

    @property
    def prompt_is_too_long(self) -> bool:
        """No number of tokens asked for would do."""
        return self.prompt_tokens + min(self.max_tokens, 1) > self.context_length

    def sentence(self, prompt: str, limit: str) -> str:
        """What is wrong, where the prompt and the number of tokens asked for are known by these names.

        LiteLLM (so aider) and LangChain know this error by "maximum context length is" and "prompt is too long".
        """
        context = (
            f"This model's maximum context length is {self.context_length} tokens and {prompt} has "
            f"{self.prompt_tokens}"
        )
        if not self.prompt_is_too_long:
            room = self.context_length - self.prompt_tokens
            return f"{context}, but {limit} is {shown(self.max_tokens)}. Lower {limit} to {room} or less."
        no_room = ", there is no room for an answer" if self.max_tokens else ""
        return f"{context}: the prompt is too long{no_room}. Shorten {prompt}."


class CorpusError(NeuroscopeError):
    """A corpus cannot be built or read: nothing usable, or an unreadable source."""


class ArtefactError(NeuroscopeError):
    """A result on disk is missing, corrupt, or was made from another model, SAE or layer."""


class LabelError(NeuroscopeError):
    """A label source, labeler or scorer cannot do its work."""


class ServerError(NeuroscopeError):
    """A running server cannot be reached, refuses a request, or fails while it answers."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        self.status = status
        """Of its answer; None where there was none."""
        self.code = code
        self.retry_after_s = retry_after_s
        super().__init__(message)

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later without a change."""
        if self.status is None:
            return self.code is None
        return self.status == 429 or (self.status >= 500 and self.code != "engine_failed")


class NoServerError(ServerError):
    """Nobody listens there."""
