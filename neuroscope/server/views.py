"""How one subscriber wants to see the stream, and the events as it then sees them.

Ranking happens here, on reading: subscribers with equal wishes share one rendered event.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neuroscope.errors import ConfigError
from neuroscope.events import ActiveFeature, FeatureActivation, FeatureEvent, PromptActivation, PromptToken
from neuroscope.ranking import FILTERS, Ranking, select
from neuroscope.server import wire
from neuroscope.server.problems import bad_request, wrong
from neuroscope.server.queries import read_choice, read_number, read_whole
from neuroscope.server.stream import Entry, FeatureStream, GeneratedToken, Published, ReadPrompt

if TYPE_CHECKING:
    from neuroscope.ranking import FiringStats
    from neuroscope.sae.autoencoder import SparseActs
    from neuroscope.steps import EncodedToken

ALIGNMENTS = ("own", "producer")
MAX_TOP_K = 1000
MAX_LISTED_FEATURES = 1000
PARAMETERS = ("top_k", "filter", "threshold", "min_activation", "features", "align")
"""What a query string says about a view."""


@dataclass(frozen=True, slots=True)
class View:
    """A subscriber's wishes. Hashable: equal views are rendered once."""

    ranking: Ranking
    align: str = "own"
    """own: the features of the token's own position; producer: of the position before, which it was sampled from.

    A prompt's tokens were given and not sampled; their producer is the position whose prediction they followed.
    """


def read_view(query: Mapping[str, str], defaults: Ranking, width: int | None) -> View:
    """The view that a query string asks for, `defaults` where it is silent. Raises Problem 400.

    `width` is how many features there are, None while that is not known: one that is not there would be waited for
    in vain.
    """
    align = read_choice(query, "align", "own", ALIGNMENTS)
    chosen = read_choice(query, "filter", defaults.filter, FILTERS)
    try:
        ranking = replace(
            defaults,
            filter=chosen,
            threshold=read_number(query, "threshold", defaults.threshold, 0, 1),
            top_k=read_whole(query, "top_k", defaults.top_k, 1, MAX_TOP_K),
            min_activation=read_number(query, "min_activation", defaults.min_activation, 0, 1e9),
            only=_features(query, defaults.only, width),
        )
    except ConfigError as error:
        raise bad_request(str(error), code="invalid_value") from error
    return View(ranking, align)


class EventWriter:
    """Turns entries of the ring into bytes for a view. Knows labels and statistics; keeps recent bytes."""

    def __init__(
        self,
        labels: Sequence[str],
        stats: FiringStats | None,
        stream: FeatureStream,
        *,
        kept: int = 1024,
        kept_bytes: int = 32_000_000,
    ) -> None:
        self._labels = labels
        self._stats = stats
        self._stream = stream
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._written: OrderedDict[tuple[int, View | None], bytes] = OrderedDict()
        self._bytes = 0

    def write(self, entry: Entry, view: View) -> bytes:
        is_ranked = isinstance(entry.published, GeneratedToken | ReadPrompt)
        key = (entry.sequence, view if is_ranked else None)
        block = self._written.get(key)
        if block is None:
            block = self._written[key] = self._block(entry, view)
            self._bytes += len(block)
            while len(self._written) > self._kept or self._bytes > self._kept_bytes:
                _, oldest = self._written.popitem(last=False)
                self._bytes -= len(oldest)
        return block

    def features(self, acts: SparseActs, ranking: Ranking) -> tuple[tuple[ActiveFeature, ...], int]:
        """The features shown for one token, and how many the filter took out above the last of them."""
        selection = select(acts, ranking, self._stats)
        surprise = (
            [math.nan] * len(selection.indices) if selection.surprise is None else selection.surprise.tolist()
        )
        rows = zip(selection.indices.tolist(), selection.activations.tolist(), surprise, strict=True)
        shown = tuple(
            ActiveFeature(i, self._labels[i], activation, wire.finite(s)) for i, activation, s in rows
        )
        return shown, selection.filtered_count

    def prompt_token(
        self, position: int, token: EncodedToken, acts: SparseActs | None, view: View
    ) -> PromptToken:
        """A given token with `acts`, those of the position that the view aligns it with; None before the first."""
        features, filtered_count = ((), 0) if acts is None else self.features(acts, view.ranking)
        return PromptToken(
            token=token.text,
            token_id=token.token_id,
            position=position,
            content=token.content,
            l0=None if acts is None else len(acts.indices),
            fvu=wire.finite(token.fvu) if view.align == "own" else None,
            top_features=features,
            filtered_count=filtered_count,
        )

    def _block(self, entry: Entry, view: View) -> bytes:
        event = self._event(entry.published, view)
        return wire.event(event.event, event.to_wire(), self._stream.identifier(entry.sequence))

    def _event(self, published: Published, view: View) -> FeatureEvent:
        if isinstance(published, GeneratedToken):
            return self._activation(published, view)
        return self._prompt(published, view) if isinstance(published, ReadPrompt) else published

    def _prompt(self, read: ReadPrompt, view: View) -> PromptActivation:
        cell = read.cell
        own = [token.acts for token in cell.tokens]
        acts = own if view.align == "own" else [cell.before, *own[:-1]]
        rows = enumerate(zip(cell.tokens, acts, strict=True), cell.start)
        tokens = tuple(self.prompt_token(position, *row, view) for position, row in rows)
        return PromptActivation(read.completion_id, read.layer, tokens)

    def _activation(self, token: GeneratedToken, view: View) -> FeatureActivation:
        step, is_own = token.step, view.align == "own"
        acts = step.acts if is_own else step.producer
        features, filtered_count = self.features(acts, view.ranking)
        return FeatureActivation(
            completion_id=token.completion_id,
            token_index=step.token_index,
            token=step.text,
            token_id=step.token_id,
            position=step.position,
            layer=token.layer,
            l0=len(acts.indices),
            fvu=wire.finite(step.fvu) if is_own else None,  # measured at the token's own position only
            top_features=features,
            filtered_count=filtered_count,
        )


def _features(
    query: Mapping[str, str], default: frozenset[int] | None, width: int | None
) -> frozenset[int] | None:
    text = query.get("features")
    if text is None:
        return default
    names = [name.strip(" ") for name in text.split(",")]
    if len(names) > MAX_LISTED_FEATURES or not all(
        n.isascii() and n.isdigit() and len(n) < 10 for n in names
    ):
        raise wrong(
            "features", text, f"at most {MAX_LISTED_FEATURES} indices with commas between, as 12,4521"
        )
    listed = frozenset(int(name) for name in names)
    if width is not None and max(listed) >= width:
        raise bad_request(
            f"'features' has {max(listed)}; the SAE has {width} features, from 0 to {width - 1}.",
            "features",
            "invalid_value",
        )
    return listed
