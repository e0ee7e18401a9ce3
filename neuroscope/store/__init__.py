"""results.duckdb: everything known about a pairing's features, in one file that other programs can query.

The only owner of DuckDB. Readers need no PyTorch: the pipeline's last rule, which does, is `store.stage`.
"""

from __future__ import annotations

from neuroscope.store.opening import open_results
from neuroscope.store.results import FeatureLabel, Results
from neuroscope.store.writing import build

__all__ = ["FeatureLabel", "Results", "build", "open_results"]
