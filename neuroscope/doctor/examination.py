"""Puts the checks together: what each is given, how long all may take, and which command comes next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscope.doctor import machine
from neuroscope.doctor.check import Check, Later, run_checks
from neuroscope.doctor.torch_build import Torch, look_at_torch, torch_check
from neuroscope.doctor.words import secrets_of, without_secrets

if TYPE_CHECKING:
    from neuroscope.settings import Settings

SECONDS = 15.0
"""For all checks together. They take some five, nearly all of it PyTorch's import; a hung driver has until then."""
NO_ACCOUNT = "NEUROSCOPE_PAIRING=smollm2-135m make demo"


@dataclass(frozen=True, slots=True)
class Report:
    """Every line, and the command to go on with."""

    checks: tuple[Check, ...]
    next: str
    why: str = ""
    """What the next command is for."""

    @property
    def blocked(self) -> bool:
        """Whether something keeps the pipeline or the server from working."""
        return any(check.status == "problem" for check in self.checks)


class Examination:
    """One look at everything, of the settings that `overrides` make."""

    def __init__(self, overrides: Mapping[str, Any], seconds: float) -> None:
        self.seconds = seconds
        self.settings: Settings | None = None
        self.error: Exception | None = None
        self.results_state = "none"
        self.ports: tuple[Any, ...] = ()
        self.torch = Later(lambda: look_at_torch(seconds - 2), "PyTorch")
        try:
            from neuroscope import settings

            self.settings = settings.load(overrides=overrides)
        except Exception as error:  # a broken library is told as a broken configuration is
            self.error = error

    def checks(self) -> list[tuple[str, Callable[[], list[Check]]]]:
        """Name and function, in the order of the report."""
        return [
            ("Python", lambda: [machine.python_version()]),
            ("system", lambda: [machine.operating_system()]),
            ("environment", lambda: [machine.environment()]),
            ("packages", lambda: [machine.packages()]),
            ("processor", lambda: [machine.processor()]),
            ("PyTorch", self._torch),
            ("llama.cpp", self._llamacpp),
            ("Chromium", lambda: [machine.browser()]),
            ("configuration", self._configuration),
            ("pairings", self._pairings),
            ("variables", self._variables),
            ("memory", self._with_settings("memory", self._memory)),
            ("disk", self._with_settings("disk", self._disk)),
            ("ports", self._with_settings("ports", self._ports)),
            ("own files", self._with_settings("own files", self._own_files)),
            ("hub's token", self._with_settings("hub's token", self._hub)),
            ("keys", self._with_settings("keys", self._keys)),
            ("cache", self._cache),
            ("results", self._with_settings("results", self._results)),
        ]

    def _with_settings(self, name: str, look: Callable[[Settings], list[Check]]) -> Callable[[], list[Check]]:
        """A check that needs the configuration: without one it is told that it was not made."""

        def looked() -> list[Check]:
            if self.settings is None:
                return [Check(name, "note", "not looked at: the configuration cannot be read")]
            return look(self.settings)

        return looked

    def _torch_found(self) -> Torch:
        try:
            return self.torch.result(self.seconds)
        except Exception as error:
            return Torch(failure=f"it could not be looked at ({type(error).__name__}: {error})")

    def _torch(self) -> list[Check]:
        return [torch_check(self._torch_found(), "auto" if self.settings is None else self.settings.device)]

    def _llamacpp(self) -> list[Check]:
        from neuroscope.doctor.project import llamacpp

        return [llamacpp(None if self.settings is None else self.settings.backend)]

    def _configuration(self) -> list[Check]:
        from neuroscope.doctor.project import configuration

        return [configuration(self.settings, self.error)]

    def _pairings(self) -> list[Check]:
        from neuroscope.doctor.project import pairings

        return pairings(None if self.settings is None else self.settings.pairing.name)

    def _variables(self) -> list[Check]:
        from neuroscope.doctor.variables import variables

        own = (
            ()
            if self.settings is None
            else (self.settings.serve.api_key_env, self.settings.labels.api_key_env)
        )
        return variables(more=own)

    def _memory(self, settings: Settings) -> list[Check]:
        from neuroscope.doctor.room import memory_check

        return [memory_check(settings, self._torch_found())]

    def _disk(self, settings: Settings) -> list[Check]:
        from neuroscope.doctor.room import disk_checks, places

        return disk_checks(places(settings))

    def _ports(self, settings: Settings) -> list[Check]:
        from neuroscope.doctor.ports import key_of, look_at_port, port_checks

        key = key_of(settings.serve.api_key_env)
        host = settings.serve.host
        chat = look_at_port(host, settings.serve.port, key)
        features = look_at_port(host, settings.serve.features_port, key)
        self.ports = (chat, features)
        return port_checks(host, chat, features)

    def _own_files(self, settings: Settings) -> list[Check]:
        from neuroscope.doctor.access import own_files

        return own_files(settings)

    def _hub(self, settings: Settings) -> list[Check]:
        from neuroscope.doctor.access import hub

        return hub(settings)

    def _keys(self, settings: Settings) -> list[Check]:
        from neuroscope.doctor.access import label_keys

        return label_keys(settings)

    def _cache(self) -> list[Check]:
        from neuroscope.doctor.kept import cache_check

        return [cache_check(self.settings)]

    def _results(self, settings: Settings) -> list[Check]:
        from neuroscope.doctor.results import look_at_results

        found = look_at_results(settings)
        self.results_state = found.state
        return list(found.lines)


def examine(overrides: Mapping[str, Any] | None = None, *, seconds: float = SECONDS) -> Report:
    """Looks at everything; never raises for what it finds. No secret is in what it returns."""
    examination = Examination(overrides or {}, seconds)
    checks = run_checks(examination.checks(), seconds)
    secrets = secrets_of(more=[_hub_token()])
    command, why = _next(examination, checks, overrides or {})
    checks = [
        replace(
            check,
            found=without_secrets(check.found, secrets),
            wanted=without_secrets(check.wanted, secrets),
            next=None
            if check.next is None
            else without_secrets(_runnable(check.next, examination, overrides or {}), secrets),
        )
        for check in checks
    ]
    return Report(tuple(checks), without_secrets(command, secrets), without_secrets(why, secrets))


def _hub_token() -> str | None:
    """The token that `hf auth login` has written: it may stand in an error's words."""
    with suppress(OSError, RuntimeError, UnicodeDecodeError):
        home = os.environ.get("HF_HOME") or str(
            Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
        )
        return (Path(home).expanduser() / "token").read_text(encoding="utf-8").strip()
    return None


def _next(examination: Examination, checks: list[Check], overrides: Mapping[str, Any]) -> tuple[str, str]:
    """The command for this state: what mends the first problem, else the next step of the way."""
    for check in checks:
        if check.status == "problem" and check.next:
            return _runnable(
                check.next, examination, overrides
            ), f"for {check.name}: {check.wanted or check.found}"
    settings = examination.settings
    if settings is None:
        return NO_ACCOUNT, ""
    features = examination.ports[1] if len(examination.ports) == 2 else None
    if features is not None and features.state == "ours":
        host = "127.0.0.1" if settings.serve.host in ("0.0.0.0", "") else settings.serve.host
        address = f"http://{f'[{host}]' if ':' in host else host}:{features.number}"
        return (
            f'curl -N "{address}/v1/features/stream"',
            f"The server is running: open {address}/ in a browser, or watch",
        )
    step = {
        "none": ("neuroscope labels generate", "Nothing has been measured for this pairing yet"),
        "statistics": ("neuroscope labels generate", "Features are measured and have no labels yet"),
        "running": (
            f"tail -f {shlex.quote(str(settings.results))}/logs/*.log",
            "A run is at work; what it says",
        ),
        "labels": ("neuroscope serve", "All is here"),
    }[examination.results_state]
    return _runnable(step[0], examination, overrides), step[1]


def _runnable(command: str, examination: Examination, overrides: Mapping[str, Any]) -> str:
    """A command of ours as it can be copied: with the pairing that is looked at, and found where it is installed."""
    words = command
    pairing = overrides.get("pairing")
    if (
        pairing
        and "neuroscope " in command
        and "--pairing" not in command
        and "NEUROSCOPE_PAIRING" not in command
    ):
        words = command + f" --pairing {shlex.quote(str(pairing))}"
    if "neuroscope " in words and shutil.which("neuroscope") is None:
        beside = Path(sys.executable).parent / "neuroscope"
        if beside.exists():
            with suppress(ValueError):
                beside = beside.relative_to(Path.cwd())
            words = words.replace("neuroscope ", f"{shlex.quote(str(beside))} ", 1)
    return words
