"""What the doctor never writes, and how checks that fail are told."""

from __future__ import annotations

import threading
import time

import pytest

from neuroscope.doctor.check import Check, run_checks
from neuroscope.doctor.variables import variables
from neuroscope.doctor.words import secrets_of, without_secrets


def test_keys_tokens_and_passwords_are_taken_out() -> None:
    environment = {
        "ANTHROPIC_API_KEY": "an-open-secret",
        "HF_TOKEN": "hf_abcdefghijkl",
        "NEUROSCOPE_API_KEY": "none",  # a word that stands in messages by chance
        "HTTPS_PROXY": "http://me:pass-word@proxy:3128",
    }
    text = "an-open-secret hf_abcdefghijkl hf_anotherone1 sk-ant-123456 http://me:pass-word@proxy:3128 none"
    assert without_secrets(text, secrets_of(environment)) == (
        "(hidden) (hidden) (hidden) (hidden) http://(hidden)@proxy:3128 none"
    )


def test_a_secret_that_begins_another_hides_neither_end() -> None:
    environment = {"A_KEY": "secret-one", "B_KEY": "secret-one-longer"}
    assert without_secrets("secret-one-longer secret-one", secrets_of(environment)) == "(hidden) (hidden)"


def test_variables_are_told_by_name_and_only_harmless_ones_with_a_value() -> None:
    environment = {
        "NEUROSCOPE_PAIRING": "tiny",
        "NEUROSCOPE_API_KEY": "open-sesame",
        "ANTHROPIC_API_KEY": "closed-sesame",
        "HOME": "/root",
    }
    (check,) = variables(environment)
    assert check.found == (
        "ANTHROPIC_API_KEY (value not shown), NEUROSCOPE_API_KEY (value not shown), NEUROSCOPE_PAIRING=tiny"
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("NEUROSCOPE_PARING", "did you mean NEUROSCOPE_PAIRING?"),
        ("neuroscope_cache", "did you mean NEUROSCOPE_CACHE?"),
        ("NEUROSCPE_API_KEY", "did you mean NEUROSCOPE_API_KEY?"),
        ("HF_TOKN", "did you mean HF_TOKEN?"),
        ("ANTROPIC_API_KEY", "did you mean ANTHROPIC_API_KEY?"),
        ("NEUROSCOPE_Q", "known: NEUROSCOPE_PAIRING"),
    ],
)
def test_a_misspelt_variable_is_told_with_the_one_that_was_meant(name: str, wanted: str) -> None:
    lines = variables({name: "a-secret-value"})
    assert lines[1].status == "note"
    assert lines[1].found == f"{name} is set, and nothing reads it"
    assert lines[1].wanted.startswith(wanted)
    assert "a-secret-value" not in "".join(map(str, lines))


def test_variables_of_others_are_none_of_our_business() -> None:
    assert (
        len(variables({"HOME": "/", "HF_XET_HIGH_PERFORMANCE": "1", "OPENAI_API_KEY": "x", "PATH": ""})) == 1
    )
    assert len(variables({"MY_SERVER_KEY": "x"}, more=("MY_SERVER_KEY",))) == 1


def test_a_check_that_fails_is_told_by_name_and_stops_no_other() -> None:
    def fails() -> list[Check]:
        raise ZeroDivisionError("by\nnought")

    def ends() -> list[Check]:
        raise SystemExit(0)

    found = run_checks(
        [("one", fails), ("two", ends), ("three", lambda: [Check("three", "ok", "fine")])], seconds=10
    )
    assert [(check.name, check.status) for check in found] == [
        ("one", "note"),
        ("two", "note"),
        ("three", "ok"),
    ]
    assert found[0].found == "this check itself failed (ZeroDivisionError: by nought)"


def test_a_check_that_hangs_delays_the_others_until_the_limit_and_no_longer() -> None:
    never = threading.Event()
    started = time.monotonic()

    def hangs() -> list[Check]:
        never.wait(60)
        return []

    found = run_checks([("hung", hangs), ("quick", lambda: [Check("quick", "ok", "fine")])], seconds=1)
    never.set()
    assert time.monotonic() - started < 10
    assert found[0].found == "this check gave no answer within 1 s"
    assert found[1].status == "ok"
