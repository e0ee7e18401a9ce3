"""Sweeps one shard of the corpus, or one of a calibration."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.sweep:run_shard",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    corpus=Path(snakemake.input.corpus),
    sae=Path(snakemake.input.sae),
    output=Path(snakemake.output.chunks),
    shard=int(snakemake.wildcards.k),
    shards=snakemake.params.shards,
    samples=snakemake.params.samples,
)
