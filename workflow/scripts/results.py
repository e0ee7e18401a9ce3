"""Puts everything into results.duckdb."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.stages.results:publish",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    stats=Path(snakemake.input.stats),
    stats_json=Path(snakemake.input.stats_json),
    examples=Path(snakemake.input.examples),
    neighbours=Path(snakemake.input.neighbours),
    report=Path(snakemake.input.report),
    logits=Path(snakemake.input.logits),
    labels=[Path(labels) for labels in snakemake.input.labels],
    states=[Path(states) for states in snakemake.input.states],
    kept=[Path(labels) for labels in snakemake.params.kept],
    scores=Path(snakemake.input.scores) if snakemake.input.scores else None,
    output=Path(snakemake.output.database),
    labels_json=Path(snakemake.output.labels_json),
)
