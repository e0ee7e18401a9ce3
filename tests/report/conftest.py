"""The report on the small database, made once."""

from __future__ import annotations

from pathlib import Path

import made_report
import pytest

from neuroscope.report.reading import read_report
from neuroscope.report.record import Report
from neuroscope.settings import Settings


@pytest.fixture(scope="session")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings whose results hold the small database."""
    found = made_report.settings_in(tmp_path_factory.mktemp("results"))
    made_report.build(found)
    return found


@pytest.fixture(scope="session")
def report(settled: Settings) -> Report:
    return read_report(settled, settled.results / "results.duckdb")


@pytest.fixture
def empty(tmp_path: Path) -> Settings:
    """Settings without results."""
    return made_report.settings_in(tmp_path)
