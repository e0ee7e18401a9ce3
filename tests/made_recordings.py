"""Recordings made by hand, whose numbers can be checked in the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neuroscope.recording import FORMAT, VERSION, Recording, check_recording

WIDTH = 32
Acts = Mapping[int, float | tuple[float, float | None]]
"""Activation by feature, or activation and surprise."""

RATES = {3: 1.0}
"""Firing rate by feature; the others fire on a tenth of all tokens."""


def active(acts: Acts) -> list[list[Any]]:
    rows = [[f, *(value if isinstance(value, tuple) else (value, None))] for f, value in acts.items()]
    return sorted(rows, key=lambda row: -row[1])


def token(
    text: str, acts: Acts, *, position: int, token_id: int | None = None, **more: Any
) -> dict[str, Any]:
    """A token whose id is a function of its text."""
    number = sum(map(ord, text)) * 100 + len(text) if token_id is None else token_id
    return {
        "token": text,
        "token_id": number,
        "position": position,
        "l0": len(acts),
        "fvu": 0.125,
        "top_features": active(acts),
        **more,
    }


def document(
    answer: Sequence[tuple[str, Acts]] = ((" a", {3: 9.0, 4: (5.0, 3.0)}), (" b", {3: 9.0})),
    prompt: Sequence[tuple[str, Acts]] = (),
    **changes: Any,
) -> dict[str, Any]:
    """The JSON of a recording; the first token of a prompt is scaffold."""
    shown = [token(text, acts, position=n, content=n > 0) for n, (text, acts) in enumerate(prompt)]
    said = [
        token(text, acts, position=len(prompt) + n, token_index=n) for n, (text, acts) in enumerate(answer)
    ]
    indices = sorted({index for row in (*shown, *said) for index, _, _ in row["top_features"]})
    return {
        "format": FORMAT,
        "version": VERSION,
        "id": "20260131t090000-0123abcd",
        "created_at": "2026-01-31T09:00:00Z",
        "title": "Where is Paris?",
        "model": "scripted/model",
        "pairing": "tiny",
        "layer": 7,
        "sae_id": "scripted/sae",
        "width": WIDTH,
        "fingerprint": {
            "model": "scripted/model",
            "model_revision": None,
            "tokenizer_sha256": "0" * 64,
            "sae_sha256": "1" * 64,
            "layer": 7,
            "d_in": 16,
            "d_sae": WIDTH,
            "input_norm": "none",
            "schema_version": 1,
        },
        "degraded": [],
        "messages": [{"role": "user", "content": "Where is Paris?"}],
        "prompt": shown,
        "tokens": said,
        "completion_id": "chatcmpl-1939d6fb",
        "finish_reason": "length",
        "total_tokens": len(said),
        "ranking": {"filter": "frequency", "threshold": 0.5, "top_k": 10},
        "features": {
            str(index): {
                "label": f"label of {index}",
                "firing_rate": RATES.get(index, 0.1),
                "mean_firing": 2.0,
                "variance_firing": 1.0,
                "max_activation": 9.0,
            }
            for index in indices
        },
        **changes,
    }


def recording(*given: Any, **changes: Any) -> Recording:
    return check_recording(document(*given, **changes), of="the test's recording")
