"""SAEs of 16,384, 65,536 and 131,072 features on the pairing's real model: the sweep, decoding, and their memory.

Random unit columns, around the mean residual, and one threshold that some 70 features of the median token pass. For
each width and each use one process: the sweep of real documents, which takes the encoder, and one greedy answer whose
every token is read as the server reads it, which takes the decoder too. From 16 million weights a token is read through
the encoder's 8-bit copy (`neuroscope.sae.screen`): the smallest SAE is below that, so its curve has a step down.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from bench.curve import Curve, Series, series
from bench.curves.corpus import texts
from bench.figure import seconds
from bench.stages import PAIRING, peak_mb, run
from neuroscope import corpus, settings
from neuroscope.manifest import SourcesLock
from neuroscope.sae import SparseAutoencoder
from neuroscope.sae.reading import FeatureReader
from neuroscope.settings import Settings
from neuroscope.sweep import Chunk, sweep_options
from neuroscope.sweep.activations import Instrument
from neuroscope.sweep.encoding import fired
from neuroscope.sweep.instrument import load_instrument
from neuroscope.sweep.shard import sweep_chunks

WIDTHS = (16_384, 65_536, 131_072)
L0 = 70
CALIBRATED = 32
"""Tokens whose median settles the threshold; more would be seen in the peak of memory."""
CHUNKS = 3
DOCUMENTS = 24
"""Of one chunk."""
ENCODED = 1024
"""Tokens that are encoded without the model."""
ANSWER = 64


class Point:
    """One process: model, texts, and a random SAE of one width."""

    def __init__(self, width: int, text: Path, *, decoder: bool) -> None:
        self.chosen: Settings = settings.load(PAIRING)
        torch.set_num_threads(self.chosen.sweep.threads)
        self.text = text
        sae = SourcesLock(self.chosen.results / "sources.lock.json").resolve(self.chosen.pairing.sae.uri).path
        loaded, self.chat, self.fingerprint = load_instrument(self.chosen, sae=sae, corpus_sha256=None)
        self.backend: Any = loaded.backend
        self.documents = corpus.read(text)
        self.residuals = self.read_some()
        self.sae = random_sae(self.residuals, width, decoder=decoder)
        self.instrument = Instrument(self.backend, self.sae, loaded.bos_id, loaded.shape)

    def read_some(self) -> Tensor:
        """Residuals [ENCODED, d_in] of real text, without those of BOS."""
        found: list[Tensor] = []
        for text in self.documents["text"]:
            found.append(self.backend.forward(self.chat.encode_text(text).ids).residual[1:].float())
            self.backend.rewind(0)
            if sum(map(len, found)) >= ENCODED:
                break
        return torch.cat(found)[:ENCODED]

    def sweep(self) -> dict[str, float]:
        options = sweep_options(self.chosen)
        chunks = [
            Chunk(str(number), "encyclopedia", tuple(frame["doc_id"].sort()))
            for number, frame in enumerate(self.documents.iter_slices(DOCUMENTS))
        ]
        rates, encoding = [], []
        with tempfile.TemporaryDirectory() as folder:
            for chunk in chunks:
                began = time.perf_counter()
                done = sweep_chunks(
                    [chunk],
                    self.text,
                    self.instrument,
                    self.chat,
                    fingerprint=self.fingerprint,
                    options=options,
                    folder=Path(folder),
                    progress=False,
                )
                rates.append((time.perf_counter() - began) / done["tokens"] * 1000)
                encoding.append(seconds(self.encode) / ENCODED * 1000)
        return {
            "s": median(rates[1:]),  # the first warms up
            "encode_s": median(encoding[1:]),
            "peak_mb": peak_mb(),
            "l0": float(self.encode().l0.mean()),  # above L0: few tokens have very many
        }

    @torch.inference_mode()
    def encode(self) -> Any:
        return fired(self.sae, self.residuals)

    def decode(self) -> dict[str, float]:
        reader = FeatureReader(self.sae)
        forward = self.backend.forward(self.chat.encode_text(self.documents["text"][0]).ids)
        took, l0 = [], []
        for _ in range(ANSWER):
            forward = self.backend.forward([int(forward.logits.argmax())])
            before = reader.clock.seconds
            (reading,) = reader.read(forward.residual)
            took.append(reader.clock.seconds - before)
            l0.append(reading.acts.l0)
        return {"ms": median(took) * 1000, "peak_mb": peak_mb(), "l0": median(l0)}


@torch.inference_mode()
def random_sae(residuals: Tensor, width: int, *, decoder: bool) -> SparseAutoencoder:
    d_in = residuals.shape[1]
    W_enc = torch.empty(d_in, width).normal_(generator=torch.Generator().manual_seed(1))
    W_enc /= W_enc.norm(dim=0)
    b_enc = -(residuals.mean(0) @ W_enc)
    some = residuals[:: len(residuals) // CALIBRATED][:CALIBRATED]
    highest = torch.addmm(b_enc, some, W_enc).topk(L0 + 1, dim=1).values
    threshold = highest[:, -2:].mean(1).median()  # on no pre-activation, where rounding would decide
    W_dec, b_dec = (W_enc.T.contiguous(), torch.zeros(d_in)) if decoder else (None, None)
    return SparseAutoencoder(W_enc, b_enc, threshold.expand(width).clone(), W_dec, b_dec)


def weights_mb(width: int, d_in: int, matrices: int) -> float:
    return width * d_in * 4 * matrices / 2**20


def measure(quick: bool) -> Curve:
    chosen = settings.load(PAIRING)
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "some.parquet"
        count = DOCUMENTS * (2 if quick else CHUNKS)
        texts(chosen, Path(name)).head(count).write_parquet(text)
        points = {
            use: [
                json.loads(run([sys.executable, "-m", __name__, use, str(width), str(text)]))
                for width in WIDTHS
            ]
            for use in USES
        }
    return Curve(
        "width",
        "Wider SAEs",
        "features",
        WIDTHS,
        [*of_sweep(points["sweep"]), *of_decode(points["decode"])],
        {f"{use}_{key}": [point[key] for point in points[use]] for use in USES for key in points[use][0]},
    )


def of_sweep(points: Sequence[dict[str, float]]) -> list[Series]:
    return [
        series(
            "sweep of 1,000 tokens",
            "s",
            WIDTHS,
            [point["s"] for point in points],
            grows=points[0]["encode_s"],
            why="encoding in proportion",
        ),
        memory("sweep", points, 1),
    ]


def of_decode(points: Sequence[dict[str, float]]) -> list[Series]:
    took = [point["ms"] for point in points]
    return [
        series("SAE per decoded token", "ms", WIDTHS, took, grows=took[0], why="bytes of the encoder"),
        memory("decoding", points, 2),
    ]


def memory(use: str, points: Sequence[dict[str, float]], matrices: int) -> Series:
    return series(
        f"peak memory, {use}",
        "MB",
        WIDTHS,
        [point["peak_mb"] for point in points],
        grows=weights_mb(WIDTHS[0], int(points[0]["d_in"]), matrices),
        why="bytes of the weights more",
    )


USES: dict[str, Callable[[Point], dict[str, float]]] = {"sweep": Point.sweep, "decode": Point.decode}


def main() -> None:
    use, width, text = sys.argv[1:]
    point = Point(int(width), Path(text), decoder=use == "decode")
    found = {**USES[use](point), "d_in": point.sae.d_in}
    print(json.dumps({name: float(f"{value:.4g}") for name, value in found.items()}))


if __name__ == "__main__":
    main()
