"""Runs the SQL of README.md and docs/ on a results database and writes what it answers below each query.

By hand, after `make demo`: python bench/readme_output.py results/smollm2-135m/results.duckdb
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import duckdb

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(```sql\n(.*?)```\n\n)```text\n.*?```\n", flags=re.DOTALL)


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """The table as DuckDB's own command line shows it."""
    return str(connection.sql(query)).rstrip()


def main(database: str) -> None:
    with duckdb.connect(database, read_only=True) as connection:
        for page in PAGES:
            text = BLOCK.sub(
                lambda found: f"{found[1]}```text\n{answer(connection, found[2])}\n```\n",
                page.read_text(encoding="utf-8"),
            )
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
