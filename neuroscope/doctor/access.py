"""Licences, keys, own files: may the pairing's files be fetched or read, and is there a key for the labeler."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from neuroscope import sources
from neuroscope.doctor.check import Check
from neuroscope.errors import SourceError
from neuroscope.settings import Settings

SECONDS = 4.0
"""For one question to the hub."""
LIST = "neuroscope models list"
WITHOUT = "without an account: NEUROSCOPE_PAIRING=smollm2-135m make demo"


def hub(settings: Settings, seconds: float = SECONDS) -> list[Check]:
    """The token and the licence, as far as the pairing needs the hub for what is not here yet."""
    from neuroscope.sources.hub_access import Answer, ask_token, has_token

    name = settings.pairing.name
    uris = [uri for uri in (settings.pairing.model, settings.pairing.sae.uri) if uri.startswith("hf://")]
    missing = [uri for uri in uris if not sources.cached(uri).is_complete]
    token = has_token()
    if not uris:
        there = "there is one" if token else "there is none"
        return [Check("hub's token", "ok", f"{there}; {name} needs none")]
    if not missing:
        there = "there is a token" if token else "there is no token"
        return [Check("hub's token", "ok", f"{there}; all of {name} is here and nothing has to be fetched")]
    answer = ask_token(seconds) if token else Answer("refused", "none is set")
    if answer.verdict in ("offline", "unreachable"):
        return [_silent("hub's token", answer.verdict, answer.words)]
    lines = []
    if token and answer.verdict == "refused":
        return [Check("hub's token", "problem", answer.words, "a valid token", "export HF_TOKEN=hf_...")]
    lines.append(Check("hub's token", "ok" if token else "note", answer.words))
    for uri in missing:
        line, was_silent = _licence(uri, token, seconds)
        lines.append(line)
        if was_silent:  # the next question would wait for the same silence
            break
    return lines


def own_files(settings: Settings) -> list[Check]:
    """Model and SAE as far as they are the user's own files: that they are there. What is in them is not read."""
    lines = []
    for name, uri in (("model", settings.pairing.model), ("SAE", settings.pairing.sae.uri)):
        try:
            source = sources.parse(uri)
            if source.kind != "path":
                continue
            path = Path(source.name).expanduser().absolute()
            is_right = path.is_file() or (path.is_dir() and path.suffix != ".gguf" and any(path.iterdir()))
        except (SourceError, OSError) as error:
            lines.append(Check(f"{name}'s files", "problem", str(error), "a file or a folder", LIST))
            continue
        if is_right:
            lines.append(Check(f"{name}'s files", "ok", str(path)))
        else:
            found = "is empty, or no file" if path.exists() else "is not there"
            lines.append(Check(f"{name}'s files", "problem", f"{path} {found}", "a file or a folder", LIST))
    return lines


def _licence(uri: str, token: bool, seconds: float) -> tuple[Check, bool]:
    """The line about one repository, and whether the hub could not be asked."""
    from neuroscope.sources.hub_access import ask_access, licence_page

    name = f"access to {sources.parse(uri).name}"
    answer = ask_access(uri, seconds)
    if answer.verdict == "granted":
        return Check(name, "ok", answer.words), False
    if answer.verdict in ("offline", "unreachable"):
        return _silent(name, answer.verdict, answer.words), True
    wanted = f"accept the licence at {licence_page(uri)}" + (
        "" if token else ", then set a token of that account"
    )
    command = f"python3 -m webbrowser {licence_page(uri)}" if token else "export HF_TOKEN=hf_..."
    return Check(name, "problem", answer.words, f"{wanted}; {WITHOUT}", command), False


def _silent(name: str, verdict: str, words: str) -> Check:
    """The hub could not be asked, and something is still to be fetched from it."""
    if verdict == "offline":
        return Check(
            name,
            "problem",
            f"{words}, and the pairing is not all here",
            "HF_HUB_OFFLINE=0",
            "unset HF_HUB_OFFLINE",
        )
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    return Check(name, "problem", words, f"a network, or {WITHOUT}", f"curl -sSI {shlex.quote(endpoint)}")


def label_keys(settings: Settings) -> list[Check]:
    """Keys of the services that label and score: that they are set, never what they are. None is sent."""
    asked = {settings.labels.labeler, settings.labels.scorer or ""}
    claude = any(name.startswith("claude") for name in asked)
    lines = [_key("ANTHROPIC_API_KEY", claude, "labels by Claude (labels.labeler)")]
    if "openai" in asked:
        variable = settings.labels.api_key_env
        words = (
            "set, value not shown" if os.environ.get(variable) else "not set; a server of your own needs none"
        )
        lines.append(Check(variable, "ok", words))
    return lines


def _key(variable: str, needed: bool, purpose: str) -> Check:
    value = os.environ.get(variable, "")
    if value.strip():
        if value != value.strip() or not value.isprintable():
            wanted = "the key alone: there are blanks or line ends around it"
            return Check(
                variable,
                "problem" if needed else "note",
                "set, value not shown",
                wanted,
                f"export {variable}=...",
            )
        return Check(variable, "ok", "set, value not shown and not sent anywhere")
    if needed:
        return Check(variable, "problem", "not set", f"needed for {purpose}", f"export {variable}=...")
    return Check(variable, "ok", f"not set; only {purpose} need it")
