"""The stages that end a run: results.duckdb, its manifest, and the exports in the original specification's shape."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from neuroscope import store
from neuroscope.errors import ArtefactError
from neuroscope.label_files import states_beside
from neuroscope.manifest import IDENTITY, Fingerprint
from neuroscope.settings import Settings
from neuroscope.sources import cache_dir, replace_atomically
from neuroscope.store.stage import build_results


def publish(
    settings: Settings,
    *,
    stats: Path,
    stats_json: Path,
    examples: Path,
    neighbours: Path,
    report: Path,
    output: Path,
    labels: Sequence[Path] = (),
    states: Sequence[Path] = (),
    kept: Sequence[Path] = (),
    scores: Path | None = None,
    logits: Path | None = None,
    labels_json: Path | None = None,
) -> None:
    """The end of a full run: results.duckdb, its manifest and exports, and those where `serve` looks by default.

    `kept` are labels of earlier labelers, which may have been paid for.
    """
    build_results(
        settings,
        stats=stats,
        examples=examples,
        neighbours=neighbours,
        report=report,
        output=output,
        labels=[*labels, *kept],
        states=[*states, *states_beside(kept)],
        scores=scores,
        logits=logits,
        labels_json=labels_json,
    )
    name = settings.pairing.export_name
    _export(stats_json, cache_dir() / "calibration" / f"{name}_stats.json")
    if labels_json is not None:
        _export(labels_json, cache_dir() / "labels" / f"{name}_autointerp.json")


def publish_calibration(
    settings: Settings,
    *,
    stats: Path,
    stats_json: Path,
    examples: Path,
    neighbours: Path,
    report: Path,
    output: Path,
    logits: Path | None = None,
) -> None:
    """The end of a calibration: results.duckdb with statistics and no labels; `logits` are imported ones.

    Leaves a database alone that has at least as many tokens of the same model, SAE and layer: that of a full run.
    Where it replaces one, the labels.json beside it goes too: so the next full run knows that it has work to do.
    """
    _export(stats_json, cache_dir() / "calibration" / f"{settings.pairing.export_name}_stats.json")
    if _holds_more(output, report):
        return
    output.with_name("labels.json").unlink(missing_ok=True)
    build_results(
        settings,
        stats=stats,
        examples=examples,
        neighbours=neighbours,
        report=report,
        output=output,
        logits=logits,
    )


def _export(path: Path, target: Path) -> None:
    with replace_atomically(target) as temporary:
        shutil.copyfile(path, temporary)


def _holds_more(database: Path, report: Path) -> bool:
    sweep = json.loads(report.read_text(encoding="utf-8"))
    try:
        with store.open_results(database) as results:
            differs = results.fingerprint().mismatches(
                Fingerprint.from_dict(sweep["fingerprint"]), keys=IDENTITY
            )
            return not differs and results.stats().n_tokens >= sweep["strata"]["all"]["tokens"]
    except ArtefactError:
        return False
