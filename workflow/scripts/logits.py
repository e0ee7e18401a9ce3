"""Finds the tokens that each feature promotes and suppresses."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.stages.labels:make_logits",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    sae=Path(snakemake.input.sae),
    output=Path(snakemake.output.logits),
)
