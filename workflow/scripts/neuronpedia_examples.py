"""Imports the strongest examples of every feature from Neuronpedia."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.neuronpedia:import_examples",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    output=Path(snakemake.output.examples),
    report=Path(snakemake.output.report),
)
