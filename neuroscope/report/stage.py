"""The call of the rule `report`: results.duckdb becomes six plots, a page and a record of all their numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from neuroscope.report.page import page
from neuroscope.report.plots import draw_all
from neuroscope.report.reading import read_report
from neuroscope.settings import Settings
from neuroscope.sources import replace_atomically


def make_report(
    settings: Settings, *, database: Path, output: Path, record: Path, plots: Sequence[Path] = ()
) -> None:
    """Write the page to `output`, its numbers to `record`, and each of `plots` by its name: all, beside the record.

    Raises ArtefactError when the results are missing, damaged or of another version, ValueError for an unknown plot.
    """
    report = read_report(settings, database)
    drawn = {plot.name: plot for plot in draw_all(report)}
    for path in plots or [record.with_name(f"{name}.svg") for name in drawn]:
        if path.stem not in drawn:
            raise ValueError(f"there is no plot {path.stem!r}; there are {', '.join(drawn)}")
        _write(path, drawn[path.stem].alone)
    content = json.dumps(report.to_dict(), allow_nan=False, ensure_ascii=True, indent=1)
    _write(record, f"{content}\n".encode())
    serve = settings.serve
    _write(output, page(report, list(drawn.values()), serve.host, serve.features_port).encode())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path) as temporary:
        temporary.write_bytes(content)
