"""Fetches the pairing's SAE and writes down where it lies."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.stages.sae:fetch_sae",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    output=Path(snakemake.output.provenance),
)
