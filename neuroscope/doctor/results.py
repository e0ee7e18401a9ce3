"""What the pipeline has left for the pairing: a whole database, one of something else, or an interrupted run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from neuroscope import jobs
from neuroscope.doctor.check import Check
from neuroscope.errors import NeuroscopeError
from neuroscope.settings import Settings


@dataclass(frozen=True, slots=True)
class Found:
    """The lines, and which of the pipeline's ends has been reached: `none`, `running`, `statistics` or `labels`."""

    state: str
    lines: tuple[Check, ...]


def look_at_results(settings: Settings) -> Found:
    """Opens results.duckdb as the server would, and looks for a run that is at work or was cut short."""
    folder = settings.results
    run = jobs.running(folder)
    lines = []
    if run is not None:
        lines.append(
            Check("pipeline", "note", f"a run is at work in {folder} (process {run})", "wait for its end")
        )
    elif cut := _cut_short(settings):
        lines.append(cut)
    if not (folder / "results.duckdb").exists():
        state = "none" if run is None else "running"
        words = f"none in {folder} yet" if state == "none" else f"none in {folder} until the run ends"
        return Found(state, (Check("results", "note", words, "statistics and labels"), *lines))
    labels, check = _database(settings)
    state = (
        "running"
        if run is not None
        else "labels"
        if labels
        else "statistics"
        if check.status != "problem"
        else "none"
    )
    return Found(state, (check, *lines))


def _database(settings: Settings) -> tuple[int, Check]:
    from neuroscope.cli.results import open_own_results

    try:
        with open_own_results(settings) as results:
            counts = results.label_counts()
            tokens = results.stats("all").n_tokens
    except NeuroscopeError as error:
        words = " ".join(str(error).split())
        path = settings.results / "results.duckdb"
        generate = "neuroscope labels generate"
        # Snakemake looks at times, not at bytes: a damaged file would stay.
        remedy = f"rm {shlex.quote(str(path))} && {generate}" if "Delete" in words else generate
        return 0, Check("results", "problem", words, "a database of this model, SAE and layer", remedy)
    total = sum(counts.values())
    by = ", ".join(f"{count:,} from {source}" for source, count in counts.items())
    words = f"{settings.results / 'results.duckdb'}: {tokens:,} tokens, " + (
        f"labels: {by}" if total else "no labels"
    )
    return total, Check("results", "ok" if total else "note", words, "" if total else "labels")


def _cut_short(settings: Settings) -> Check | None:
    """What a run left that did not come to its end."""
    folder = settings.results
    told = sorted(folder.glob(f"logs/*{jobs.FAILURE}"))
    if told:
        words = " ".join(told[-1].read_text(encoding="utf-8", errors="replace").split())[:300]
        return Check(
            "pipeline", "note", f"the last run failed: {words}", "the same command goes on where it was"
        )
    if any(folder.rglob(".*.tmp")) or (
        (folder / jobs.RUN_LOCK).exists() and not (folder / "results.duckdb").exists()
    ):
        return Check(
            "pipeline", "note", f"a run in {folder} was cut short", "the same command goes on where it was"
        )
    return None
