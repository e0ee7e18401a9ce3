"""Scores every label on held-out windows."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.stages.scores:make_scores",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    labels=[Path(labels) for labels in snakemake.input.labels],
    examples=Path(snakemake.input.examples),
    pool=Path(snakemake.input.pool),
    neighbours=Path(snakemake.input.neighbours),
    kept=[Path(labels) for labels in snakemake.params.kept],
    output=Path(snakemake.output.scores),
)
