"""results.duckdb: everything known about a pairing's features, in one file that other programs can query.

The only owner of DuckDB.
"""

from __future__ import annotations

from neuroscope.store.opening import open_results
from neuroscope.store.results import FeatureLabel, Results
from neuroscope.store.stage import build_results
from neuroscope.store.writing import build

__all__ = ["FeatureLabel", "Results", "build", "build_results", "open_results"]
