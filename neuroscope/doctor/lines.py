"""The report as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from neuroscope.doctor.examination import Report

MARKS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
COLUMNS = 110


def report_lines(report: Report, columns: int = COLUMNS) -> Iterator[str]:
    """Verdict, name, what was found and what is wanted; the next command last."""
    room = max((len(check.name) for check in report.checks), default=0)
    indent = " " * (9 + room + 2)
    for check in report.checks:
        text = check.found if not check.wanted else f"{check.found.removesuffix('.')}. Wanted: {check.wanted}"
        if check.status == "ok" and check.wanted:
            text = f"{check.found}; {check.wanted}"
        head = f"{MARKS[check.status]:<9}{check.name:<{room}}  "
        yield from textwrap.wrap(
            text or "-",
            max(columns, len(indent) + 30),
            initial_indent=head,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    problems = sum(check.status == "problem" for check in report.checks)
    yield ""
    yield f"{problems} problem{'' if problems == 1 else 's'}." if problems else "Nothing is in the way."
    yield f"Next: {report.next}"
    if report.why:
        yield from textwrap.wrap(
            report.why, columns, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
        )
