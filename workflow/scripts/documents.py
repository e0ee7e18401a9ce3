"""Fetches the corpus' sources and cuts them into documents."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.corpus.stage:build_documents",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    output=Path(snakemake.output.documents),
)
