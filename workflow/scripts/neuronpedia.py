"""Imports labels, firing rates and promoted tokens from Neuronpedia."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.neuronpedia:import_features",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    labels=Path(snakemake.output.labels),
    prior=Path(snakemake.output.prior),
    logits=Path(snakemake.output.logits),
    report=Path(snakemake.output.report),
)
