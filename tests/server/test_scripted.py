"""The stand-in keeps step with what it stands in for."""

from __future__ import annotations

import inspect

from scripted import CELL, ScriptedEngine

from neuroscope.engine import PREFILL_CELL, Engine


def test_the_scripted_engine_is_called_as_the_engine_is() -> None:
    for name in ("prepare", "generate", "encode", "score"):
        own = inspect.signature(getattr(ScriptedEngine, name)).parameters.values()
        real = inspect.signature(getattr(Engine, name)).parameters.values()
        assert [parameter.kind for parameter in own] == [parameter.kind for parameter in real]
        keywords = [p.name for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY]
        assert keywords == [p.name for p in real if p.kind is inspect.Parameter.KEYWORD_ONLY]


def test_the_scripted_engine_has_the_attributes_that_the_server_reads(tiny_engine: Engine) -> None:
    assert tiny_engine.reused_tokens == ScriptedEngine().reused_tokens == 0
    assert CELL == PREFILL_CELL
