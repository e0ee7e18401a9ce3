"""Merges the shards' chunks into statistics, examples, pool and neighbours."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.sweep:merge",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    corpus=Path(snakemake.input.corpus),
    shards=[Path(shard) for shard in snakemake.input.shards],
    stats=Path(snakemake.output.stats),
    examples=Path(snakemake.output.examples),
    pool=Path(snakemake.output.pool),
    neighbours=Path(snakemake.output.neighbours),
    report=Path(snakemake.output.report),
    stats_json=Path(snakemake.output.stats_json),
    samples=snakemake.params.samples,
)
