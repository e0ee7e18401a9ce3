"""Joins documents and conversations into the corpus."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.corpus.stage:join",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    documents=Path(snakemake.input.documents),
    chat=Path(snakemake.input.chat),
    output=Path(snakemake.output.corpus),
)
