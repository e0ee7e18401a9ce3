"""Which documents are swept, cut into chunks: a function of the corpus, the shares and `samples` alone.

A chunk is a fixed range of one stratum's documents in order of doc_id. Documents are awarded to strata one
after the other by the divisor method of Webster (Sainte-Laguë): unlike largest remainders, which can take a
document away from a stratum when the total grows, it only ever adds. So a larger `samples` has the smaller
one's chunks first, then more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from neuroscope.errors import ConfigError, CorpusError
from neuroscope.manifest import Fingerprint

CHUNK_FORMAT = 2
"""Changes when the content of a chunk's file changes: older files are then not used."""

DEFAULT_SHARE = 1.0
"""Share of a stratum that is not weighed: by default all count alike, so that conversations are not drowned."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of one stratum's documents, the unit of work."""

    id: str
    """Stratum and number, for people: `code-00003`."""
    stratum: str
    doc_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Everything but model, SAE and text that a chunk's result depends on."""

    window: int = 256
    """Tokens per row of a batch, BOS included; longer documents are cut into consecutive windows."""
    batch: int = 16
    bos: bool = True
    outlier_norm: float = 10.0
    """Positions whose residual norm exceeds this many times the chunk's median are left out."""
    per_feature: int = 20
    sampled: int = 5
    held_out: int = 50
    pool: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window < 2 or self.batch < 1:
            raise ConfigError(
                f"sweep.window is {self.window} and sweep.batch {self.batch}; at least 2 and 1 are needed."
            )


def plan_chunks(
    documents: pl.DataFrame, samples: int, chunk_documents: int, shares: Mapping[str, float] | None = None
) -> list[Chunk]:
    """The chunks that hold at least `samples` documents, in the order in which growing samples add them.

    `documents` has the columns doc_id and stratum; `shares` weighs strata (missing: 1). A stratum that runs
    out of documents gives all it has, the rest comes from the others; each is rounded up to whole chunks.
    Raises CorpusError when there are no documents.
    """
    if documents.is_empty():
        raise CorpusError("The corpus has no documents to sweep. Build it with: neuroscope corpus build")
    by_stratum = {
        name: frame["doc_id"].sort().to_list()
        for (name,), frame in documents.select("doc_id", "stratum")
        .partition_by("stratum", as_dict=True)
        .items()
    }
    names = sorted(by_stratum)
    weights = [max(float((shares or {}).get(name, DEFAULT_SHARE)), 0.0) for name in names]
    # Document n of a stratum is awarded at share / (2n + 1); the `samples` largest quotients win.
    award = np.concatenate(
        [
            weight / (2.0 * np.arange(len(by_stratum[name])) + 1)
            for name, weight in zip(names, weights, strict=True)
        ]
    )
    stratum = np.repeat(np.arange(len(names)), [len(by_stratum[name]) for name in names])
    number = np.concatenate([np.arange(len(by_stratum[name])) for name in names])
    winners = np.lexsort((number, stratum, -award))[: max(samples, 1)]
    firsts = winners[number[winners] % chunk_documents == 0]
    chunks = []
    for row in firsts[award[firsts] > 0].tolist():
        name, start = names[stratum[row]], int(number[row])
        doc_ids = tuple(by_stratum[name][start : start + chunk_documents])
        chunks.append(Chunk(f"{name}-{start // chunk_documents:05d}", name, doc_ids))
    return chunks


def chunk_key(chunk: Chunk, fingerprint: Fingerprint, options: SweepOptions) -> str:
    """Names the chunk's file: a hash of all that its content depends on.

    The corpus as a whole is not part of it (its documents are, by content), so a growing corpus keeps its
    chunks; nor is where the SAE lies (its bytes are), so a moved checkout keeps them too.
    """
    made_from = fingerprint.to_dict()
    del made_from["corpus_sha256"], made_from["package_version"], made_from["sae"]
    content = {
        "format": CHUNK_FORMAT,
        "fingerprint": made_from,
        "options": asdict(options),
        "stratum": chunk.stratum,
        "doc_ids": chunk.doc_ids,
    }
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
