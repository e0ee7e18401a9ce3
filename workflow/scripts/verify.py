"""Tests the pairing's numbers on text of its corpus."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.verify:verify_pairing",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    corpus=Path(snakemake.input.corpus),
    sae=Path(snakemake.input.sae),
    output=Path(snakemake.output.report),
    examples=Path(snakemake.input.examples[0]) if snakemake.input.examples else None,
)
