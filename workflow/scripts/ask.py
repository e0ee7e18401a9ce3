"""Has a language model name every feature that has enough examples."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.stages.asking:ask_labels",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    examples=Path(snakemake.input.examples),
    stats=Path(snakemake.input.stats),
    logits=Path(snakemake.input.logits),
    output=Path(snakemake.output.labels),
    states=Path(snakemake.output.states),
)
