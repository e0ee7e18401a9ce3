"""Takes the labels that the user has."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.stages.asking:take_labels",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    stats=Path(snakemake.input.stats),
    output=Path(snakemake.output.labels),
    states=Path(snakemake.output.states),
)
