"""How many positions a model was made for: the name of the setting differs between families.

Whether a prompt or a window fits is for those who run it to say.
"""

from __future__ import annotations

from typing import Any

from neuroscope.errors import ModelError

LIMITS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")
"""Where configs keep it; the second is GPT-2's."""


def context_length(config: Any) -> int:
    """Positions whose numbers do not depend on how many came in one forward pass.

    LongRoPE (Phi 3 of 128k) turns all positions by other frequencies once there are more than
    `original_max_position_embeddings`, so that cached keys and those of a full pass would part there: its context
    ends at that number. Raises ModelError for a config that names no limit.
    """
    text = config.get_text_config(decoder=True)
    named = (getattr(text, name, None) for name in LIMITS)
    limits = [limit for limit in named if isinstance(limit, int)][:1]
    if not limits:
        raise ModelError(
            f"The config of this model ({text.model_type}) does not say how long its context is: it has none of "
            f"{', '.join(LIMITS)}. Add its name to LIMITS in neuroscope/models/context.py."
        )
    rotary = getattr(text, "rope_parameters", None) or {}
    for kind in (rotary, *rotary.values()):  # one for all layers, or one for each type of layer
        if isinstance(kind, dict) and kind.get("rope_type") == "longrope":
            limits.append(int(kind["original_max_position_embeddings"]))
    return min(limits)
