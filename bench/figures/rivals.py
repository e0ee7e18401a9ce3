"""The sweep against other tools that run a model with an SAE over text, each in its own environment.

All sides run the same windows of 256 tokens (BOS and 255 of text) in the same batches through the same float32 weights
to the same layer and SAE. Each is a process that has loaded its model and run once before the clock, which it holds
itself; they take turns. A comparison whose sides count other firings is void, so it fails. Ours plans, tokenises, runs
every collector and writes chunk files; what theirs do is in `bench/rivals`. The limit for outliers is lifted on our
side, since neither of the others has one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from bench.figure import Figure, Spread
from bench.rivals.install import python_of
from bench.rivals.talk import MARK
from neuroscope import settings
from neuroscope.manifest import SourcesLock
from neuroscope.models.chat import ChatTokenizer
from neuroscope.models.loading import _model_directory, load_tokenizer
from neuroscope.sweep.plan import SweepOptions
from neuroscope.sweep.windows import tokenize

PAIRING = "smollm2-135m"
WINDOW, WINDOWS, BATCH = 256, 16, 8
RIVALS = Path(__file__).parents[1] / "rivals"
TEXTS = Path(__file__).parents[2] / "workflow/resources/smollm2-135m-chat.jsonl"
DIFFERENT = 1e-3
"""Of all firings, those that may be on one side only: float32 rounds otherwise in another order of adding."""

Run = dict[str, Any]


def documents(chat: ChatTokenizer) -> list[str]:
    """Stretches of the shipped conversations' text that are one full window each, when tokenised by themselves."""
    talks = [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()]
    text = "\n\n".join(turn["content"] for talk in talks for turn in talk)
    ids = chat.encode_text(text, bos=False).ids
    found: list[str] = []
    for start in range(0, len(ids), WINDOW):
        piece = chat.tokenizer.decode(ids[start : start + WINDOW - 1])
        if len(chat.encode_text(piece, bos=False).ids) == WINDOW - 1:
            found.append(piece)
        if len(found) == WINDOWS:
            return found
    raise SystemExit(f"{TEXTS.name} has only {len(found)} windows of {WINDOW} tokens; {WINDOWS} are needed.")


def write_work(folder: Path) -> Run:
    """What all sides are given: where model, SAE and text are, and in which batches they run."""
    chosen = settings.load(PAIRING)
    lock = SourcesLock(chosen.results / "sources.lock.json")
    model = lock.resolve(chosen.pairing.model).path
    chat = ChatTokenizer(load_tokenizer(model))
    texts = documents(chat)
    names = [f"{number:032x}" for number in range(len(texts))]
    frame = {"doc_id": names, "stratum": ["text"] * len(texts), "text": texts}
    pl.DataFrame(frame).write_parquet(folder / "corpus.parquet")
    ids = tokenize(chat, "text", texts, bos=True).ids.reshape(len(texts), WINDOW - 1)
    np.save(folder / "windows.npy", np.insert(ids.astype(np.int64), 0, chat.bos_id, axis=1))
    return {
        "pairing": PAIRING,
        "model": str(_model_directory(model)),
        "sae": str(lock.resolve(chosen.pairing.sae.uri).path),
        "corpus": str(folder / "corpus.parquet"),
        "windows": str(folder / "windows.npy"),
        "layer": chosen.pairing.layer,
        "bos": chat.bos_id,
        "batch": BATCH,
        "threads": chosen.sweep.threads,
        "options": asdict(SweepOptions(window=WINDOW, batch=BATCH, outlier_norm=1e30)),
    }


class Side:
    """A process that runs the work whenever it is asked to."""

    def __init__(self, process: subprocess.Popen[str], work: Mapping[str, Any]) -> None:
        self.process = process
        self.ask(work)

    def ask(self, what: object) -> Any:
        """One line there, and what is answered to it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise SystemExit("A side of the comparison has ended by itself; its error is above.")

    def run(self) -> Run:
        answer: Run = self.ask("run")
        return answer


def environment() -> dict[str, str]:
    """The caller's, without what would put packages of this environment before those of the tool's own."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}


@contextmanager
def side(python: str, script: str, work: Mapping[str, Any]) -> Iterator[Side]:
    """`script` of bench/rivals, loaded and run once; ended when the comparison is."""
    process = subprocess.Popen(
        [python, str(RIVALS / script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        started = Side(process, work)
        started.run()
        yield started
    finally:
        process.kill()
        process.wait()


def check_same(ours: Run, theirs: Run, name: str) -> float:
    """The share of firings that only one side has, by feature. Ends the comparison when it is not of the same work."""
    one, other = (np.asarray(run["fired"]) for run in (ours, theirs))
    share = float(np.abs(one - other).sum() / one.sum())
    if ours["tokens"] != theirs["tokens"] or share > DIFFERENT:
        raise SystemExit(
            f"{name} has not done the same work: {theirs['tokens']} tokens and {other.sum()} firings, "
            f"ours {ours['tokens']} and {one.sum()}; {share:.2%} of them by feature are on one side only."
        )
    return share


def figure(name: str, against: str, promised: float, ours: Sequence[Run], theirs: Sequence[Run]) -> Figure:
    pairs = list(zip(ours, theirs, strict=True))
    shares = [check_same(one, other, name) for one, other in pairs]
    speed = [median(run["tokens"] / run["seconds"] for run in runs) for runs in (ours, theirs)]
    return Figure(
        f"sweep-vs-{name}",
        "sweep, tokens/s, all collectors on",
        against,
        Spread.of([other["seconds"] / one["seconds"] for one, other in pairs]),
        "x",
        at_least=promised,
        details={
            "ours_tokens_per_s": round(speed[0]),
            "theirs_tokens_per_s": round(speed[1]),
            "tokens_a_run": ours[0]["tokens"],
            "l0": round(sum(ours[0]["fired"]) / ours[0]["tokens"], 2),
            "firings_on_one_side_only": f"{max(shares):.4%}",
        },
    )


def measure(rounds: int) -> list[Figure]:
    pythons = {name: python_of(name) for name in ("delphi", "saelens")}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        work = write_work(Path(name))
        sides = {
            "ours": stack.enter_context(side(sys.executable, "ours.py", work)),
            "delphi": stack.enter_context(side(pythons["delphi"], "delphi_cache.py", work)),
            "saelens": stack.enter_context(side(pythons["saelens"], "saelens_store.py", work)),
        }
        runs: dict[str, list[Run]] = {who: [] for who in sides}
        for number in range(rounds):
            for who in list(sides) if number % 2 else list(reversed(sides)):
                runs[who].append(sides[who].run())
    ours = runs["ours"]
    return [
        figure("delphi", "Delphi's cache of the same", 1.6, ours, runs["delphi"]),
        figure(
            "saelens", "SAELens's store, encoding and counts of firings only", 1.05, ours, runs["saelens"]
        ),
    ]
