"""A small written world with features whose meaning is known, in the files that the sweep would leave.

Texts are made from templates by topic, tokens from a fixed rule with word pieces and single digits, and each feature
fires by a rule of its own, so that what its label ought to say and how its score ought to come out is known.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from neuroscope.examples import gather_windows, is_held_out, spread_over_quantiles, window_rows
from neuroscope.sweep.neighbours import neighbours


def _words(text: str) -> list[str]:
    return text.split()


TOPICS = {
    "chemistry": _words("acid reaction molecule solvent catalyst oxide polymer electron compound solution"),
    "football": _words("goal striker league referee stadium penalty midfielder championship coach fans"),
    "war": _words("army siege cavalry regiment battle treaty fortress artillery invasion truce"),
    "royalty": _words("king queen emperor throne crown palace dynasty prince heir court"),
    "ideas": _words("Buddhism realism Marxism optimism tourism feudalism school teacher belief doctrine"),
}
CITIES = ["Paris", "Copenhagen", "Lisbon", "Warsaw", "Dublin", "Athens", "Prague"]
NAMES = ["Marie", "Otto", "Lena", "Pablo", "Ingrid", "Karl"]
VERBS = ["described", "changed", "reached", "followed", "left", "praised", "studied"]
ADJECTIVES = ["old", "large", "famous", "early", "small", "strange", "green"]
PIECES = {"Copenhagen": ["Cop", "enh", "agen"], "midfielder": ["mid", "fielder"]}


def _sentence(rng: random.Random, topic: str) -> str:
    a, b = rng.sample(TOPICS[topic], 2)
    name, city, verb, adjective = (rng.choice(group) for group in (NAMES, CITIES, VERBS, ADJECTIVES))
    year = rng.randint(1820, 2020)
    return rng.choice(
        [
            f"The {adjective} {a} of {city} {verb} the {b}.",
            f"In {year}, {name} {verb} a {a} near {city}.",
            f"{name} may have {verb} the {b} of the {adjective} {a} in May {year}.",
            f"The University of {city} has a {adjective} {b}, and {name} {verb} it.",
            f"A {a} is a kind of {b}, said {name}.",
            f"It {verb} the {a} and the {b} in {rng.randint(2, 99)} days.",
        ]
    )


def _code(rng: random.Random) -> str:
    name, field_name = rng.choice(["parse", "load", "close", "reset"]), rng.choice(["path", "items", "size"])
    return (
        f"def {name}(self, {field_name}):\n    if self.{field_name} is None:\n        "
        f"return self.{name}({field_name})\n    self.{field_name} = {rng.randint(0, 9)}\n"
    )


def tokenize(text: str) -> list[str]:
    """Words with the blank before them, digits one by one, some words in pieces."""
    tokens = []
    for found in re.findall(r" ?[A-Za-z]+| ?\d|\n| +(?= )|[^A-Za-z\d]", text):
        blank, word = (" ", found[1:]) if found[:1] == " " and len(found) > 1 else ("", found)
        in_two = word.endswith("ism") and len(word) > 3
        pieces = [word[:-3], "ism"] if in_two else PIECES.get(word, [word])
        tokens += [blank + pieces[0], *pieces[1:]]
    return tokens


@dataclass
class World:
    """Documents as tokens, and the vocabulary."""

    documents: list[list[str]]
    topics: list[str]
    vocabulary: list[str] = field(default_factory=list)

    @classmethod
    def written(cls, n_documents: int = 420, seed: int = 0) -> World:
        rng = random.Random(seed)
        documents, topics = [], []
        for _ in range(n_documents):
            topic = rng.choice([*TOPICS, "code"])
            parts = [
                _code(rng) if topic == "code" else _sentence(rng, topic) for _ in range(rng.randint(3, 6))
            ]
            documents.append(tokenize(("" if topic == "code" else " ").join(parts)))
            topics.append(topic)
        vocabulary = sorted({token for document in documents for token in document})
        return cls(documents, topics, vocabulary)

    def text(self, token_id: int) -> str:
        return self.vocabulary[token_id]

    def token_id(self, token: str) -> int:
        return self.vocabulary.index(token)


Fires = Callable[[Sequence[str], int, str], bool]


def _previous(tokens: Sequence[str], i: int) -> str:
    return tokens[i - 1] if i else ""


FEATURES: dict[str, Fires] = {
    "paris": lambda tokens, i, topic: tokens[i] == " Paris",
    "digits": lambda tokens, i, topic: tokens[i].strip().isdigit(),
    "after of": lambda tokens, i, topic: _previous(tokens, i) == " of",
    "self": lambda tokens, i, topic: tokens[i].strip() == "self",
    "ism": lambda tokens, i, topic: tokens[i] == "ism",
    "chemistry": lambda tokens, i, topic: topic == "chemistry" and len(tokens[i]) > 4,
    "royals": lambda tokens, i, topic: tokens[i] in (" king", " queen", " emperor"),
    "sentence start": lambda tokens, i, topic: i > 0 and _previous(tokens, i) == "." and topic != "code",
    "before of": lambda tokens, i, topic: i + 1 < len(tokens) and tokens[i + 1] == " of",
    "university of": lambda tokens, i, topic: tokens[i] == " of" and _previous(tokens, i) == " University",
    "always": lambda tokens, i, topic: i % 10 != 3,
    "indentation": lambda tokens, i, topic: bool(tokens[i]) and tokens[i].isspace() and tokens[i] != "\n",
    "copenhagen": lambda tokens, i, topic: tokens[i] == " Cop",
    "May": lambda tokens, i, topic: tokens[i] == " May",
    "noise": lambda tokens, i, topic: _chance(tokens, i) < 0.02,
    "dead": lambda tokens, i, topic: False,
}
NUMBER = {name: number for number, name in enumerate(FEATURES)}


def _chance(tokens: Sequence[str], i: int) -> float:
    digest = hashlib.blake2b(repr((tokens[:40], i)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32


@dataclass(frozen=True)
class Sweep:
    """The files of a sweep over a world."""

    world: World
    examples: Path
    pool: Path
    stats: Path
    logits: Path
    neighbours: Path


def sweep(
    world: World, folder: Path, *, features: Mapping[str, Fires] = FEATURES, n_pool: int = 900, seed: int = 0
) -> Sweep:
    """Writes the files of a sweep by the columns of the real one; features are numbered in their order."""
    rng = np.random.default_rng(seed)
    number = {token: i for i, token in enumerate(world.vocabulary)}
    ids = np.array([number[token] for document in world.documents for token in document], np.int32)
    document = np.repeat(np.arange(len(world.documents)), [len(tokens) for tokens in world.documents])
    start = np.searchsorted(document, np.arange(len(world.documents)))
    names = [hashlib.sha256(repr(tokens).encode()).hexdigest()[:32] for tokens in world.documents]
    held_out = np.array([is_held_out(name, 0.4) for name in names])[document]
    acts = np.zeros((len(ids), len(features)), np.float32)
    for row, (d, first) in enumerate(zip(document, start[document], strict=True)):
        tokens, topic = world.documents[d], world.topics[d]
        for column, fires in enumerate(features.values()):
            acts[row, column] = fires(tokens, row - first, topic)
    acts *= rng.uniform(1, 9, acts.shape).astype(np.float32)
    columns = {
        "doc_id": np.array(names)[document],
        "position": np.arange(len(ids)) - start[document],
        "stratum": np.where(np.array(world.topics)[document] == "code", "code", "encyclopedia"),
        "window": gather_windows(ids, window_rows(np.arange(len(ids)), document)),
    }
    rows = pl.DataFrame(columns)
    _write_examples(folder / "examples.parquet", rows, acts, held_out, ids, rng)
    _write_pool(
        folder / "pool.parquet", rows, acts, rng.permutation(np.flatnonzero(held_out))[:n_pool], document
    )
    stats = {
        "feature": np.arange(len(features), dtype=np.int32),
        "stratum": ["all"] * len(features),
        "n_tokens": [len(ids)] * len(features),
        "n_fired": (acts > 0).sum(0),
    }
    pl.DataFrame(stats).write_parquet(folder / "stats.parquet")
    _write_logits(folder / "logits.parquet", world, features)
    neighbours(pl.read_parquet(folder / "pool.parquet"), len(features)).write_parquet(
        folder / "neighbours.parquet"
    )
    names = ["examples", "pool", "stats", "logits", "neighbours"]
    return Sweep(world, *(folder / f"{name}.parquet" for name in names))


def _write_examples(
    path: Path,
    rows: pl.DataFrame,
    acts: np.ndarray,
    held_out: np.ndarray,
    ids: np.ndarray,
    rng: np.random.Generator,
) -> None:
    parts = []
    for feature in range(acts.shape[1]):
        fires = acts[:, feature] > 0
        labelling = np.flatnonzero(fires & ~held_out)
        others = rng.permutation(np.flatnonzero(fires & held_out))[:200]
        order = labelling[np.argsort(-acts[labelling, feature], kind="stable")]
        _, first = np.unique(rows["doc_id"].to_numpy()[order], return_index=True)
        spread = spread_over_quantiles(np.full(len(others), feature), acts[others, feature], 50)
        chosen = {
            "top": order[np.sort(first)][:20],
            "sample": rng.permutation(labelling)[:5],
            "held_out": others[spread],
        }
        for kind, tokens in chosen.items():
            part = rows[tokens].with_columns(
                feature=pl.lit(feature, pl.Int32),
                kind=pl.lit(kind),
                rank=pl.int_range(len(tokens), dtype=pl.Int32),
                activation=pl.Series(acts[tokens, feature], dtype=pl.Float32),
                token_id=pl.Series(ids[tokens], dtype=pl.Int32),
            )
            parts.append(part)
    pl.concat(parts).write_parquet(path)


def _write_pool(
    path: Path, rows: pl.DataFrame, acts: np.ndarray, tokens: np.ndarray, document: np.ndarray
) -> None:
    around = window_rows(tokens, document)
    features, offsets, activations = [], [], []
    for window in around:
        inside = np.flatnonzero(window >= 0)
        place, feature = np.nonzero(acts[window[inside]])
        features.append(feature.tolist())
        offsets.append(inside[place].tolist())
        activations.append(acts[window[inside]][place, feature].tolist())
    pool = rows[tokens].with_columns(
        window_id=pl.int_range(len(tokens)),
        features=pl.Series(features, dtype=pl.List(pl.Int32)),
        offsets=pl.Series(offsets, dtype=pl.List(pl.UInt8)),
        activations=pl.Series(activations, dtype=pl.List(pl.Float32)),
    )
    pool.write_parquet(path)


def _write_logits(path: Path, world: World, features: Iterable[str]) -> None:
    """Every feature promotes three words; `before of` promotes the word it stands before."""
    rows = []
    for feature, name in enumerate(features):
        promoted = [" of", " in", " near"] if name == "before of" else [" green", " strange", " early"]
        for rank, token in enumerate(promoted):
            rows.append((feature, "promoted", rank, world.token_id(token), token, 3.0 - rank))
            rows.append((feature, "suppressed", rank, world.token_id(" the"), " the", rank - 3.0))
    names = ["feature", "kind", "rank", "token_id", "token", "weight"]
    pl.DataFrame(rows, schema=names, orient="row").write_parquet(path)
