"""Damages releases at random and loads them: `python mutations.py FOLDER COUNT` prints what came of it as JSON.

A program of its own, so that its memory is its own. Every file of every container is damaged: bytes flipped, cut,
inserted, digits of headers and configurations changed, members of archives doubled.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import sys
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from fakes import releases

from neuroscope.errors import SAEFormatError
from neuroscope.sae import FORMATS, load_sae

D_IN, D_SAE = 8, 24
Damage = Callable[[bytearray, np.random.Generator], bytes]


def flip(content: bytearray, rng: np.random.Generator) -> bytes:
    for at in rng.integers(0, len(content), rng.integers(1, 5)):
        content[at] = rng.integers(0, 256)
    return bytes(content)


def flip_edges(content: bytearray, rng: np.random.Generator) -> bytes:
    """Headers stand at the beginning, directories of archives at the end."""
    for _ in range(3):
        at = int(rng.integers(0, min(600, len(content))))
        content[at if rng.random() < 0.5 else -1 - at] = rng.integers(0, 256)
    return bytes(content)


def cut(content: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(content[: rng.integers(0, len(content))])


def insert(content: bytearray, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(0, len(content)))
    return bytes(content[:at] + rng.bytes(int(rng.integers(1, 64))) + content[at:])


def change_digits(content: bytearray, rng: np.random.Generator) -> bytes:
    """Sizes, offsets, shapes and options become others, some of them huge or negative."""
    numbers = list(re.finditer(rb"\d+", bytes(content[:4000])))
    number = numbers[int(rng.integers(len(numbers)))]
    others = [b"0", b"1", b"-1", b"7", b"99999999999999999999", b"1e400", b"null", b"[]", b"9" * 5000]
    other = others[int(rng.integers(len(others)))]
    return bytes(content[: number.start()] + other + content[number.end() :])


def double(content: bytearray, rng: np.random.Generator) -> bytes:
    """A part of the file a second time."""
    start = int(rng.integers(0, len(content)))
    end = int(rng.integers(start, len(content)))
    return bytes(content[:end] + content[start:])


DAMAGES: list[Damage] = [flip, flip_edges, cut, insert, change_digits, double]


def double_member(file: Path, rng: np.random.Generator) -> None:
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "a") as archive:
        names = archive.namelist()
        archive.writestr(names[int(rng.integers(len(names)))], rng.bytes(64))


def main(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    originals = {
        name: getattr(releases, name)(folder / "whole" / name, D_IN, D_SAE, 0).relative_to(folder / "whole")
        for name in FORMATS
    }
    for name, path in originals.items():
        load_sae(folder / "whole" / path, format=name, device="cpu")
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for number in range(count):
        name = list(FORMATS)[number % len(FORMATS)]
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folder / "whole" / name, work / name)
        files = sorted(file for file in (work / name).rglob("*") if file.is_file())
        file = files[int(rng.integers(len(files)))]
        if zipfile.is_zipfile(file) and rng.random() < 0.1:
            double_member(file, rng)
        else:
            damage = DAMAGES[int(rng.integers(len(DAMAGES)))]
            file.write_bytes(damage(bytearray(file.read_bytes()), rng))
        try:
            sae = load_sae(work / originals[name], format=name, device="cpu")
        except SAEFormatError as error:
            outcomes["refused"] += 1
            if str(work) not in str(error):
                wrong.append(f"{number} {name}: {error} does not name the file")
        except BaseException as error:
            wrong.append(f"{number} {name} {file.name}: {type(error).__name__}: {error}")
        else:
            outcomes["loaded"] += 1
            tensors = (sae.W_enc, sae.b_enc, sae.threshold, sae.W_dec, sae.b_dec)
            finite = all(tensor is not None and bool(torch.isfinite(tensor).all()) for tensor in tensors)
            if not finite or (sae.d_in, sae.d_sae) != (D_IN, D_SAE):
                wrong.append(
                    f"{number} {name} {file.name}: loaded {sae.d_in} x {sae.d_sae}, finite: {finite}"
                )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    seconds = time.process_time() - started
    print(json.dumps({**outcomes, "wrong": wrong, "grown_kib": grown, "seconds": seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
