"""A checkout of the pipeline with a tiny random pairing in it: the real Snakefile, rules, scripts and schemas.

Texts are a few short documents of three strata, so that the whole pipeline runs in seconds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fakes.tiny import D_SAE, TINY_LAYER, save_tiny_llama, save_tiny_sae

ROOT = Path(__file__).parents[2]
PAIRING = "tiny"
SUBJECTS = ("Paris", "the moon", "a river", "bread", "music", "winter", "the sea", "a horse")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder that `snakemake` runs in."""

    root: Path

    @property
    def results(self) -> Path:
        return self.root / "results" / PAIRING

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "2", *words]

    def environment(self, **more: str) -> dict[str, str]:
        """The caller's, with a cache of its own and no pairing chosen."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NEUROSCOPE_")}
        return {**kept, "NEUROSCOPE_CACHE": str(self.root / "cache"), "OMP_NUM_THREADS": "1", **more}

    def snakemake(self, *words: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs it as a user would; all it says is in stderr."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.root,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def jobs(self, *words: str) -> set[str]:
        """Rules that would run now."""
        said = self.snakemake(*words, "--dry-run", "--quiet", "rules", "host")
        table = (said.stdout + said.stderr).partition("Job stats:")[2].partition("\n\n")[0]
        rows = [line.split() for line in table.splitlines()]
        return {row[0] for row in rows if len(row) == 2 and row[1].isdigit()} - {"total"}

    def configure(self, **sections: Mapping[str, Any]) -> None:
        """Changes values of config.yaml, section by section."""
        path = self.root / "config/config.yaml"
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        for section, values in sections.items():
            tree[section] = {**tree[section], **values}
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")


def make_checkout(root: Path) -> Checkout:
    """A new checkout below `root`, in a path with a space."""
    folder = root / "a checkout"
    shutil.copytree(
        ROOT / "workflow", folder / "workflow", ignore=shutil.ignore_patterns("resources", "__pycache__")
    )
    shutil.copytree(ROOT / "profiles", folder / "profiles")
    shutil.copytree(ROOT / "config", folder / "config", ignore=shutil.ignore_patterns("pairings"))
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, folder / name)
    save_tiny_llama(folder / "model")
    save_tiny_sae(folder / "sae.npz")
    _write_texts(folder / "texts")
    _write_pairing(folder / "config/pairings")
    checkout = Checkout(folder)
    checkout.configure(sweep={"chunk_documents": 4})
    path = folder / "config/config.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("gemma-2-2b-it", PAIRING), encoding="utf-8")
    return checkout


def _write_texts(folder: Path) -> None:
    for stratum in ("encyclopedia", "code", "conversation"):
        (folder / stratum).mkdir(parents=True)
    for number, subject in enumerate(SUBJECTS * 2):
        (folder / "encyclopedia" / f"{number}.txt").write_text(
            f"{subject.capitalize()} is a subject of article {number}. The people said that {subject} was old."
        )
        (folder / "code" / f"{number}.py").write_text(
            f"def f{number}(x):\n    return x + {number}  # {subject}\n"
        )
        (folder / "conversation" / f"{number}.txt").write_text(
            f"Do you like {subject}? Yes, I like {subject} {number} times a day."
        )


def _write_pairing(folder: Path) -> None:
    folder.mkdir(parents=True)
    sources = [
        {"name": stratum, "stratum": stratum, "source": f"texts/{stratum}"}
        for stratum in ("encyclopedia", "code", "conversation")
    ]
    pairing = {
        "description": "A tiny random Llama.",
        "model": "model",
        "layer": TINY_LAYER,
        "dtype": "float32",
        "licence": "none",
        "sae": {
            "source": "sae.npz",
            "path": None,
            "format": "gemma_scope",
            "input_norm": "none",
            "width": D_SAE,
        },
        "neuronpedia": None,
        "published": None,
        "defaults": {
            "corpus": {"sources": sources, "chat": {"documents": 4, "max_tokens": 8, "batch": 2}},
            "calibration": {"samples": 8},
            "examples": {"samples": 40},
            "sweep": {"batch": 4, "shards": 2, "threads": 1},
        },
    }
    (folder / f"{PAIRING}.yaml").write_text(yaml.safe_dump(pairing), encoding="utf-8")
