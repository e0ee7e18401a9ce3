"""Trains a sparse autoencoder on the pairing's model and corpus."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.training.stage:train_sae",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    corpus=Path(snakemake.input.corpus),
    output=Path(snakemake.output.params).parent,
    work=Path(snakemake.output.params).parent / "work",
)
