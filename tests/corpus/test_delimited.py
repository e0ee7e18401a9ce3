"""CSV as people write it: every row is read right or counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroscope.corpus import delimited
from neuroscope.corpus.found import Found, Skipped
from neuroscope.corpus.readers import read_files

LINE = "The river runs, slowly; through the old town | under a bridge."
OTHER = "A second text, which speaks of a mill; beside the water."
BROKEN = Skipped("invalid CSV row")
RAGGED = Skipped("CSV row of another length")


def found(folder: Path, content: str | bytes, name: str = "a.csv") -> list[Found]:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_files(folder / name))


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("delimiter", list(",;\t|"))
@pytest.mark.parametrize("header", ["id{d}text{d}n", "id{d}words{d}n", '"i"{d}"w o r d s"{d}"n"', None])
def test_each_delimiter_is_found_with_a_header_or_without(
    name: str, delimiter: str, header: str | None, tmp_path: Path
) -> None:
    lines = [header] if header else []
    lines += [f'1{{d}}"{LINE}"{{d}}7', f'2{{d}}"{OTHER}"{{d}}8', f'3{{d}}"{LINE} Again."{{d}}9']
    content = "\n".join(lines).format(d=delimiter)
    assert found(tmp_path, content, name) == [LINE, OTHER, f"{LINE} Again."]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_a_byte_order_mark_is_no_part_of_the_first_name(mark: str, encoding: str, tmp_path: Path) -> None:
    text = f'text;id\r\n"{LINE}";1\r\n'
    content = (mark + text if encoding == "utf-8" else text).encode(encoding)
    assert found(tmp_path, content) == [LINE]


def test_a_file_of_one_column_is_not_cut_at_its_commas(tmp_path: Path) -> None:
    assert found(tmp_path, f"text\n{LINE}\n{OTHER}\n") == [LINE, OTHER]
    assert found(tmp_path, "The cat, they say, sat.\nIt rained all day.\nNobody, not one, came.\n") == [
        "The cat, they say, sat.",
        "It rained all day.",
        "Nobody, not one, came.",
    ]


def test_line_ends_and_doubled_quotes_inside_quotes_are_text(tmp_path: Path) -> None:
    content = 'id,text\n1,"He said ""yes"".\nThen, slowly:\n\n""no"""\n2,"next, and last"\n'
    assert found(tmp_path, content) == ['He said "yes".\nThen, slowly:\n\n"no"', "next, and last"]


def test_a_quote_that_is_never_closed_costs_its_row_and_no_other(tmp_path: Path) -> None:
    content = 'id,text\n1,first text\n2,"never closed\n3,third text\n4,"fourth, quoted"\n5,fifth text\n'
    assert found(tmp_path, content) == ["first text", BROKEN, "third text", "fourth, quoted", "fifth text"]
    assert found(tmp_path, 'id,text\n1,first text\n2,"never closed\n3,third text\n') == [
        "first text",
        BROKEN,
        "third text",
    ]


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "MAX_RECORD_CHARS", 1000)
    rows = "".join(f"{number},text of row {number}\n" for number in range(500))
    expected = [BROKEN, *(f"text of row {number}" for number in range(500))]
    assert found(tmp_path, f'id,text\n0,"open\n{rows}') == expected


def test_quotes_that_are_words_stay_in_the_text(tmp_path: Path) -> None:
    content = 'id\ttext\n1\t"Yes" she said\n2\tso "they" say\n'
    assert found(tmp_path, content, "a.tsv") == ['"Yes" she said', 'so "they" say']


def test_a_row_of_another_length_is_counted_for_its_text_may_be_cut(tmp_path: Path) -> None:
    content = "id,text,n\n1,plain words,7\n2,words, with a comma,8\n3\n4,more words,9,,\n\n5,last words,10\n"
    assert found(tmp_path, content) == ["plain words", RAGGED, RAGGED, "more words", "last words"]


def test_texts_with_bare_commas_are_counted_even_when_most_rows_have_one(tmp_path: Path) -> None:
    assert found(tmp_path, "id,text\n1,one, two\n2,three, four\n3,five words\n") == [
        RAGGED,
        RAGGED,
        "five words",
    ]


def test_a_field_of_megabytes_is_read_whole(tmp_path: Path) -> None:
    text = "word, " * 500_000
    assert found(tmp_path, f'id,text\n1,"{text}"\n2,short words\n') == [text, "short words"]
    assert found(tmp_path, f'key,words\n1,"{text}"\n2,"short words"\n') == [text, "short words"]


def test_a_table_without_rows_is_counted(tmp_path: Path) -> None:
    assert found(tmp_path, "id,text\n") == [Skipped("empty")]
    assert found(tmp_path, "") == [Skipped("empty")]
