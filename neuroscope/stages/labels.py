"""The stages that name features without asking anybody: promoted tokens, and labels by rules."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from neuroscope.autointerp.logits import compute_logits
from neuroscope.autointerp.pipeline import label_features
from neuroscope.autointerp.words import TokenText
from neuroscope.errors import LabelError
from neuroscope.manifest import SourcesLock
from neuroscope.models.loading import load_model
from neuroscope.pairing_sae import load_pairing_sae
from neuroscope.settings import Settings
from neuroscope.store.stage import vocabulary

log = logging.getLogger(__name__)

Item = TypeVar("Item")


def make_logits(settings: Settings, *, sae: Path, output: Path) -> None:
    """The tokens that each feature promotes and suppresses. `sae` is the provenance.json."""
    pairing = settings.pairing
    source = SourcesLock(settings.results / "sources.lock.json").resolve(pairing.model)
    model, tokenizer = load_model(
        source.path, device=settings.device, dtype=pairing.dtype, quantization=settings.torch_quantization
    )
    weights = Path(json.loads(sae.read_text(encoding="utf-8"))["path"])
    decoder = load_pairing_sae(pairing, weights, device=str(model.device)).W_dec
    if decoder is None:
        raise LabelError(f"{weights} has no decoder: promoted tokens cannot be computed without one.")
    compute_logits(
        W_dec=decoder,
        model=model,
        tokens=token_text(settings),
        out=output,
        excluded=tokenizer.all_special_ids,
        progress=bar("promoted tokens", "block"),
    )


def make_labels(
    settings: Settings,
    *,
    examples: Path,
    pool: Path,
    stats: Path,
    logits: Path,
    output: Path,
    states: Path | None = None,
) -> None:
    """A label from rules for every feature with examples: they stand in where another labeler has none."""
    counts = label_features(
        examples=examples,
        pool=pool,
        stats=stats,
        logits=logits,
        tokens=token_text(settings),
        out=output,
        states=states,
        per_feature=settings.labels.examples_per_feature,
        sampled=settings.examples.sampled,
        progress=bar("labels", "feature"),
    )
    log.info("%s", counts)


def token_text(settings: Settings) -> TokenText:
    """The text of a token id; empty for ids beyond the vocabulary, with which models pad theirs."""
    texts = [token.decode("utf-8", "replace") for token in vocabulary(settings)]
    return lambda token: texts[token] if token < len(texts) else ""


def bar(title: str, unit: str) -> Callable[[Sequence[Item]], Iterable[Item]]:
    """Wraps what is gone over in a progress bar."""
    return lambda items: tqdm(items, desc=title, unit=unit, mininterval=1)
