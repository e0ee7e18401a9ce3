"""From what the ring holds of one answer to a recording: every token with all its features, named once.

What was filtered for no subscriber is still there, unranked; the ring forgets, so an answer is recorded soon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from neuroscope.events import GenerationComplete, GenerationError
from neuroscope.ranking import Ranking, select
from neuroscope.recording import MAX_TITLE, Recording, identity
from neuroscope.server import wire
from neuroscope.server.problems import RETRY_AFTER_S, Problem
from neuroscope.server.stream import FeatureStream, GeneratedToken, Published, ReadPrompt
from neuroscope.sessions import new_id

if TYPE_CHECKING:
    from neuroscope.ranking import FiringStats
    from neuroscope.sae.autoencoder import SparseActs
    from neuroscope.server.loaded import Loaded
    from neuroscope.steps import EncodedToken

Row = dict[str, Any]

DEFAULT_TITLE = 80
"""Characters of the question, or of the text, where whoever saves it gives no title."""
_EVERYTHING = Ranking("none", 1.0, 1 << 30)


def published_of(stream: FeatureStream, completion_id: str, is_known: bool) -> list[Published]:
    """All events of a finished answer, its end last. `is_known`: it is being answered or waits to be.

    Raises Problem: 404 unknown, 409 not finished, 410 begun before what is kept, 422 failed or without a token.
    """
    reading = stream.answer(completion_id)
    published = [] if reading is None else [entry.published for entry in reading.entries]
    last = published[-1] if published else None
    if is_known and not isinstance(last, GenerationComplete | GenerationError):
        message = f"{completion_id} is not finished yet. Save it when its generation_complete has come."
        raise Problem(409, message, param="completion_id", code="not_finished", retry_after_s=RETRY_AFTER_S)
    if reading is None:
        message = f"There is no answer {completion_id} among the newest events of this run of the server."
        raise Problem(404, message, param="completion_id", code="completion_not_found")
    if reading.missed:
        message = (
            f"The beginning of {completion_id} is gone: {reading.missed:,} of its events are no longer among those "
            "that serve.ring keeps. Save an answer soon after it has ended, or raise serve.ring."
        )
        raise Problem(410, message, param="completion_id", code="completion_gone")
    if isinstance(last, GenerationError):
        message = f"{completion_id} failed and is no whole answer: {last.message}"
        raise Problem(422, message, param="completion_id", code="completion_failed")
    if not any(isinstance(one, GeneratedToken) for one in published):
        message = f"{completion_id} has no token: it was cancelled before its first one."
        raise Problem(422, message, param="completion_id", code="completion_empty")
    return published


def recording_of(
    published: Sequence[Published],
    loaded: Loaded,
    ranking: Ranking,
    *,
    title: str | None,
    messages: list[Row] | None,
) -> Recording:
    """The recording of what `published_of` gave; a long one takes tens of milliseconds."""
    cells = [one.cell for one in published if isinstance(one, ReadPrompt)]
    steps = [one.step for one in published if isinstance(one, GeneratedToken)]
    end = published[-1]
    assert isinstance(end, GenerationComplete)
    prompt = [
        prompt_row(position, token, loaded.stats)
        for cell in cells
        for position, token in enumerate(cell.tokens, cell.start)
    ]
    tokens = [
        {
            "token_index": step.token_index,
            "token": step.text,
            "token_id": step.token_id,
            "position": step.position,
            **_activity(step.acts, step.fvu, loaded.stats),
        }
        for step in steps
    ]
    now = datetime.now(UTC)
    return Recording(
        id=new_id(now),
        created_at=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        title=title or _title(messages, prompt, tokens) or end.completion_id,
        model=end.model,
        pairing=loaded.pairing,
        layer=loaded.layer,
        sae_id=loaded.sae_id,
        width=loaded.width,
        fingerprint=identity(loaded.fingerprint, loaded.model),
        degraded=list(end.degraded),
        messages=messages,
        prompt=prompt,
        tokens=tokens,
        completion_id=end.completion_id,
        finish_reason=end.finish_reason,
        total_tokens=end.total_tokens,
        ranking={"filter": ranking.filter, "threshold": ranking.threshold, "top_k": ranking.top_k},
        features=about_features(chain(prompt, tokens), loaded),
    )


def prompt_row(position: int, token: EncodedToken, stats: FiringStats | None) -> Row:
    """A given token as a recording has it."""
    return {
        "token": token.text,
        "token_id": token.token_id,
        "position": position,
        "content": token.content,
        **_activity(token.acts, token.fvu, stats),
    }


def about_features(rows: Any, loaded: Loaded) -> dict[str, Row]:
    """Label and statistics in use of each feature that is active in `rows`, by its index as a string."""
    indices = sorted({index for row in rows for index, _, _ in row["top_features"]})
    columns: dict[str, list[float | None]] = {}
    for name in ("firing_rate", "mean_firing", "variance_firing", "max_activation"):
        figure = getattr(loaded.stats, name, None)  # imported rates have two of them
        if figure is None:
            columns[name] = [None] * len(indices)
        else:  # a rate is compared with a threshold, so it keeps every digit
            chosen = figure[indices]
            columns[name] = [*map(wire.finite, chosen.tolist() if name == "firing_rate" else _short(chosen))]
    return {
        str(index): {"label": loaded.labels[index], **{name: column[n] for name, column in columns.items()}}
        for n, index in enumerate(indices)
    }


def _activity(acts: SparseActs, fvu: float | None, stats: FiringStats | None) -> Row:
    chosen = select(acts, _EVERYTHING, stats)
    count = len(chosen.indices)
    activations = _short(chosen.activations)
    surprise = [math.nan] * count if chosen.surprise is None else _short(chosen.surprise)
    return {
        "l0": len(acts.indices),
        "fvu": wire.finite(fvu),
        "top_features": [
            [index, activation, wire.finite(z)]
            for index, activation, z in zip(chosen.indices.tolist(), activations, surprise, strict=True)
        ],
    }


def _short(values: Any) -> list[float]:
    """As 32-bit floats in the fewest digits that read back as the same ones: half the file."""
    return [float(text) for text in values.astype("float32").astype(str)]


def _title(messages: list[Row] | None, prompt: Sequence[Row], tokens: Sequence[Row]) -> str:
    """How the last question begins, else the prompt, else the answer."""
    asked = [message["content"] for message in messages or [] if message["role"] == "user"]
    given = "".join(row["token"] for row in prompt if row["content"])
    text = " ".join((asked[-1:] or [given or "".join(row["token"] for row in tokens)])[0].split())
    assert DEFAULT_TITLE < MAX_TITLE
    return text if len(text) <= DEFAULT_TITLE else f"{text[: DEFAULT_TITLE - 3]}..."
