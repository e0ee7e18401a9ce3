"""What Neuronpedia publishes about an SAE, as it lies in a results folder: firing rates, labels, logits, examples.

Every file carries the names on Neuronpedia that it is about (column `neuronpedia`): one about another pair is not used.
How the files come about is `neuronpedia/`'s business; they are read by whatever has nothing measured of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from neuroscope.errors import ArtefactError, made_anew
from neuroscope.labels import LabelSet, read_labels
from neuroscope.settings import Neuronpedia
from neuroscope.sources import replace_atomically

SOURCE = "neuronpedia"
LABELS = "labels/neuronpedia.parquet"
PRIOR = "neuronpedia.parquet"
LOGITS = "neuronpedia_logits.parquet"
EXAMPLES = "neuronpedia_examples.parquet"
"""Below a pairing's results."""

MOST_PER_FEATURE = 100
"""Rows; one of these files has a few."""
MOST_BYTES = 1 << 30

ABOUT = "neuronpedia"
"""Column that names the pair."""

REMEDY = made_anew("neuroscope labels import neuronpedia")


@dataclass(frozen=True, slots=True, eq=False)
class FiringPrior:
    """Firing rates that Neuronpedia measured, on its texts: what a filter goes by until something is measured here."""

    source: ClassVar[str] = "neuronpedia prior"
    n_tokens: ClassVar[None] = None
    """Neuronpedia does not say how many tokens it read."""

    about: str
    """The pair's names there: model id/source id."""
    firing_rate: NDArray[np.float64]  # [d_sae], NaN where it publishes none
    max_activation: NDArray[np.float64]  # [d_sae], NaN where it publishes none

    @property
    def d_sae(self) -> int:
        return len(self.firing_rate)

    @property
    def n_known(self) -> int:
        """Features with a firing rate."""
        return int((~np.isnan(self.firing_rate)).sum())

    def surprise(self, indices: NDArray[Any], activations: NDArray[Any]) -> NDArray[np.float64]:
        """Unknown (NaN): it takes a mean and a variance, which are not published."""
        return np.full(len(indices), np.nan)


def name(names: Neuronpedia) -> str:
    """A pair's names on Neuronpedia as one: gemma-2-2b/20-gemmascope-res-16k."""
    return f"{names.model_id}/{names.sae_id}"


def read_prior(results: Path, names: Neuronpedia | None, d_sae: int) -> FiringPrior | None:
    """The imported firing rates of this very pair; None when none were imported, or no rate was published.

    Raises ArtefactError for a file that is damaged, or about another pair or width.
    """
    frame = _read(results / PRIOR, names, d_sae)
    if names is None or frame is None or frame.is_empty():
        return None
    try:
        features = frame["feature"].cast(pl.Int64).to_numpy()
        if frame["feature"].null_count() or features.min() < 0 or features.max() >= d_sae:
            raise ArtefactError(
                f"{results / PRIOR} is about more features than this SAE's {d_sae:,}. {REMEDY}"
            )
        columns = {}
        for column in ("firing_rate", "max_activation"):
            columns[column] = np.full(d_sae, np.nan)
            columns[column][features] = frame[column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    except pl.exceptions.PolarsError as error:
        raise ArtefactError(f"{results / PRIOR} lacks its columns: {error}. {REMEDY}") from error
    prior = FiringPrior(name(names), **columns)
    return prior if prior.n_known else None


def read_imported_labels(results: Path, names: Neuronpedia | None, d_sae: int) -> LabelSet:
    """The imported labels of this very pair, the one to choose first; empty when there are none.

    Raises ArtefactError as `read_prior` does.
    """
    frame = _read(results / LABELS, names, d_sae)
    if frame is None or frame.is_empty():
        return LabelSet()
    found = read_labels(results / LABELS, SOURCE)
    if any(not 0 <= label.feature < d_sae for label in found.labels):
        raise ArtefactError(f"{results / LABELS} is about more features than this SAE's {d_sae:,}. {REMEDY}")
    return found


def read_examples(path: Path, names: Neuronpedia | None) -> pl.DataFrame | None:
    """Neuronpedia's examples of this very pair (see `neuronpedia.examples`); None when there are none.

    Raises ArtefactError as `read_prior` does.
    """
    frame = _read(path, names)
    return None if frame is None or frame.is_empty() else frame


def write(path: Path, frame: pl.DataFrame, names: Neuronpedia) -> None:
    """Writes a file of this kind."""
    with replace_atomically(path) as temporary:
        frame.with_columns(pl.lit(name(names)).alias(ABOUT)).write_parquet(temporary)


def _read(path: Path, names: Neuronpedia | None, d_sae: int | None = None) -> pl.DataFrame | None:
    """The rows of a file about `names`; None when it is not there, or the pair has no names on Neuronpedia.

    A file of a few bytes may claim any number of rows: with `d_sae` no more are read than so many features can have.
    """
    if names is None or not os.path.lexists(path):
        return None
    if not os.path.isfile(path):
        raise ArtefactError(f"{path} is no file that can be read. {REMEDY}")
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ArtefactError(f"{path} has {size:,} bytes: no import is that large. {REMEDY}")
        content = path.read_bytes()  # Polars would map the file: one that is cut meanwhile ends the process
        rows = pl.scan_parquet(content).select(pl.len()).collect().item()
        if d_sae is not None and rows > MOST_PER_FEATURE * d_sae:
            raise ArtefactError(f"{path} has {rows:,} rows for {d_sae:,} features. {REMEDY}")
        frame = pl.read_parquet(content)
        about: Sequence[str] = frame[ABOUT].unique().to_list()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}. {REMEDY}") from error
    if others := [other for other in about if other != name(names)]:
        raise ArtefactError(f"{path} is about {others[0]}, the pairing is {name(names)} there. {REMEDY}")
    return frame
