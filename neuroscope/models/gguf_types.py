"""The number types that whole GGUF files are made in, by the names people write: q4_k_m, Q4_K_M, q4k.

Words only: what is done with a type is `llamacpp_file`'s business.
"""

from __future__ import annotations

FILE_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q8_0": 7,
    "q5_0": 8,
    "q5_1": 9,
    "q2_k": 10,
    "q3_k_s": 11,
    "q3_k_m": 12,
    "q3_k_l": 13,
    "q4_k_s": 14,
    "q4_k_m": 15,
    "q5_k_s": 16,
    "q5_k_m": 17,
    "q6_k": 18,
    "bf16": 32,
}
"""Name -> number in `general.file_type` of a GGUF file, which is llama.cpp's `llama_ftype`."""

SHORT = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m", "q8": "q8_0"}
"""llama.cpp's own short names, and the one 8-bit type."""


def file_type(name: str) -> str | None:
    """The type that `name` means, as it stands in FILE_TYPES; None when it is no GGUF type's."""
    plain = _plain(name)
    return next(
        (SHORT.get(known, known) for known in (*FILE_TYPES, *SHORT) if _plain(known) == plain),
        None,
    )


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
