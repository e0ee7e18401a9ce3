"""The configuration and the pairings: whether they can be read, and what they choose."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from neuroscope.doctor.check import Check
from neuroscope.errors import NeuroscopeError


def configuration(settings: object, error: Exception | None) -> Check:
    """What is in use, or why it cannot be read."""
    if error is not None:
        words = (
            " ".join(str(error).split())
            if isinstance(error, NeuroscopeError)
            else f"{type(error).__name__}: {error}"
        )
        if isinstance(error, ImportError):
            return Check(
                "configuration", "problem", words, "the packages that it is read with", "./install.sh"
            )
        wanted = "a valid configuration: config/README.md has every key"
        return Check("configuration", "problem", words, wanted, _mend(words))
    from neuroscope.settings import Settings, config_path

    assert isinstance(settings, Settings)
    words = f"{config_path(settings.root, None)}: {settings.pairing.name} on {settings.device}, {settings.backend}"
    return Check(
        "configuration",
        "ok",
        words if settings.quantization == "none" else f"{words} {settings.quantization}",
    )


def _mend(words: str) -> str:
    if "There is no pairing" in words:
        return "export NEUROSCOPE_PAIRING=smollm2-135m"
    if os.environ.get("NEUROSCOPE_CONFIG") and ("was not found above" in words or "cannot be read" in words):
        return "unset NEUROSCOPE_CONFIG"
    return "git diff config"


def pairings(chosen: str | None) -> list[Check]:
    """Every pairing file there is, read: a broken one hurts when it is chosen."""
    from neuroscope import settings

    names = settings.pairings()
    lines = []
    for name in names:
        try:
            settings.load_pairing(name)
        except NeuroscopeError as error:
            status = "problem" if name == chosen else "note"
            remedy = f"git diff config/pairings/{name}.yaml"
            words = " ".join(str(error).split())
            lines.append(
                Check("pairings", "problem" if status == "problem" else "note", words, "a valid file", remedy)
            )
    return [Check("pairings", "ok", f"{len(names) - len(lines)}: {', '.join(names)}"), *lines]


def llamacpp(backend: str | None) -> Check:
    """The extra that runs GGUF files."""
    try:
        return Check("llama.cpp", "ok", f"llama-cpp-python {version('llama-cpp-python')}")
    except PackageNotFoundError:
        command = "pip install -c constraints.txt -e '.[llamacpp]'"
        if backend == "llamacpp":
            return Check("llama.cpp", "problem", "not installed", "the backend in use needs it", command)
        return Check("llama.cpp", "ok", "not installed; only --backend llamacpp needs it")
