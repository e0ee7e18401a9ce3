"""The server whose feature pages are timed: the product's own on results of `WIDTH` features, around no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scripted import scripted

from bench.made_results import fingerprint
from neuroscope import settings
from neuroscope.server.loaded import Load, Loaded
from neuroscope.server.loading import source_of
from neuroscope.server.process import start

WIDTH = 16_384


def load(settled: settings.Settings) -> Load:
    def loads(_enter_stage: Callable[[str], None]) -> Loaded:
        source = source_of(settled, fingerprint(WIDTH))
        return replace(scripted(), source=source, width=WIDTH).with_known(source.find(None))

    return loads


def __getattr__(name: str) -> Any:
    if name != "application":
        raise AttributeError(name)
    return start(settings.load, load)
