"""Lets the pairing's own model write the conversations of the stratum `chat`."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.corpus.stage:build_chat",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    documents=Path(snakemake.input.documents),
    output=Path(snakemake.output.chat),
)
