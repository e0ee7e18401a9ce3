"""Puts a calibration's statistics into results.duckdb, unless a full run's are there."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.stages.results:publish_calibration",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    stats=Path(snakemake.input.stats),
    stats_json=Path(snakemake.input.stats_json),
    examples=Path(snakemake.input.examples),
    neighbours=Path(snakemake.input.neighbours),
    report=Path(snakemake.input.report),
    logits=Path(snakemake.input.logits[0]) if snakemake.input.logits else None,
    output=Path(snakemake.params.database),
)
