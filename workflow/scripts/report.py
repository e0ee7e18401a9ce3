"""Draws the plots of the results and writes the page about them."""

from pathlib import Path

from neuroscope.jobs import run
from neuroscope.settings import from_snakemake

run(
    "neuroscope.report.stage:make_report",
    from_snakemake(snakemake.config),
    log=snakemake.log[0],
    database=Path(snakemake.input.database),
    output=Path(snakemake.output.html),
    record=Path(snakemake.output.record),
    plots=[Path(plot) for plot in snakemake.output.plots],
)
