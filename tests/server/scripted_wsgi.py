"""The real server process around the scripted engine: `python -m gunicorn scripted_wsgi`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scripted import FINGERPRINT, scripted

from neuroscope import settings
from neuroscope.errors import ModelError
from neuroscope.server.loaded import Load, Loaded
from neuroscope.server.loading import source_of
from neuroscope.server.process import start


def load(settled: settings.Settings) -> Load:
    loads = 0

    def load_scripted(enter_stage: Callable[[str], None]) -> Loaded:
        nonlocal loads
        loads += 1
        enter_stage("reading the script")
        time.sleep(
            float(os.environ.get("SCRIPTED_LOAD_SECONDS" if loads == 1 else "SCRIPTED_RELOAD_SECONDS", "0"))
        )
        if loads > 1 and (message := os.environ.get("SCRIPTED_RELOAD_ERROR")):
            raise RuntimeError(message)
        if message := os.environ.get("SCRIPTED_LOAD_ERROR"):
            raise ModelError(message)
        if os.environ.get("SCRIPTED_RESULTS"):
            return with_results(settled)
        return scripted()

    return load_scripted


def with_results(settled: settings.Settings) -> Loaded:
    """What is known comes from the results folder of the settings, as for a real model."""
    source = source_of(settled, FINGERPRINT)
    return replace(scripted(), source=source).with_known(source.find(None))


def __getattr__(name: str) -> Any:
    if name != "application":
        raise AttributeError(name)
    return start(settings.load, load)
