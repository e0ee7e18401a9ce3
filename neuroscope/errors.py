"""Errors for the person who can mend them: each message names what was found, what is accepted, the next command.

Only expected failures live here; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations


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


class ContextOverflowError(PromptError):
    """The prompt, with the tokens asked for, does not fit the model's context."""

    def __init__(self, prompt_tokens: int, max_tokens: int, context_length: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_length = context_length
        super().__init__(
            f"This model's context is {context_length} tokens; the messages take {prompt_tokens} "
            f"and {max_tokens} were asked for. Shorten the messages or lower max_tokens."
        )


class CorpusError(NeuroscopeError):
    """A corpus cannot be built or read: nothing usable, or an unreadable source."""


class ArtefactError(NeuroscopeError):
    """A result on disk is missing, corrupt, or was made from another model, SAE or layer."""


class LabelError(NeuroscopeError):
    """A label source, labeler or scorer cannot do its work."""
