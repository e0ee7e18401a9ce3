"""What reaches a terminal: nothing that steers it, as wide as it is said to be, in an encoding it has."""

from __future__ import annotations

import io
import sys
import unicodedata

import pytest

from neuroscope.cli.output import show, show_record
from neuroscope.cli.terminal import clip, clip_start, echo, visible, width, wrap


def test_every_character_that_shows_nothing_gets_a_sign() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            sign = visible(character)
            assert sign.isprintable(), hex(code)
            assert sign not in ("", character), hex(code)
        else:
            assert visible(character) == character


def test_signs_can_be_told_from_letters() -> None:
    assert visible("a\nb\tc\x1b[2J\x7f\u202e\x9b") == "a↵b⇥c␛[2J␡<U+202E><U+009B>"
    assert visible(r"a\nb") == r"a\nb"


@pytest.mark.parametrize(("text", "columns"), [("cat", 3), ("猫", 2), ("e\u0301", 1), ("😀é", 3), ("", 0)])
def test_width_is_counted_in_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize("text", ["a long line of text", "猫猫猫猫猫猫猫猫", "a猫b猫c猫d猫e"])
def test_a_clipped_text_fits(text: str) -> None:
    for columns in range(20):
        head, tail = clip(text, columns), clip_start(text, columns)
        assert width(head) <= columns
        assert width(tail) <= columns
        assert text.startswith(head.removesuffix("…"))
        assert text.endswith(tail.removeprefix("…"))
    assert clip(text, width(text)) == text == clip_start(text, width(text))


def test_wrapped_lines_fit_and_lose_no_piece() -> None:
    pieces = ["one", "two", "three", "四", "five"]
    assert list(wrap(pieces, 9)) == ["one two", "three 四", "five"]
    assert list(wrap(["much too long"], 5)) == ["much…"]
    assert list(wrap([], 5)) == []


def test_tables_align_wide_characters_and_show_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"label": "猫", "n": 1}, {"label": "\x1b[2Jcat", "n": 20}], as_json=False)
    assert capsys.readouterr().out.splitlines() == ["label     n", "猫        1", "␛[2Jcat  20"]
    show_record({"label": "a\nb"}, as_json=False)
    assert capsys.readouterr().out == "label  a↵b\n"


def test_an_encoding_without_a_sign_gets_an_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    echo("«cat» 😀")
    sys.stdout.flush()
    assert written.getvalue() == rb"\xabcat\xbb \U0001f600" + b"\n"
