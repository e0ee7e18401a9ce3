"""Which backend runs the model: types of GGUF files are llama.cpp's, 8 and 4 bits of torchao are torch's."""

from __future__ import annotations

import pytest

from neuroscope import settings
from neuroscope.errors import ConfigError
from neuroscope.models.gguf_types import FILE_TYPES, file_type


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("q4k", "q4_k_m"),
        ("Q4_K", "q4_k_m"),
        ("Q4_K_M", "q4_k_m"),
        ("q4_k_s", "q4_k_s"),
        ("Q3K", "q3_k_m"),
        ("q6k", "q6_k"),
        ("Q2-K", "q2_k"),
        ("Q8_0", "q8_0"),
        ("q8", "q8_0"),
        ("F16", "f16"),
        ("q4", None),
        ("q4_k_x", None),
        ("int8", None),
    ],
)
def test_a_type_is_known_by_its_usual_spellings(written: str, meant: str | None) -> None:
    assert file_type(written) == meant


def test_every_type_is_spelled_as_llama_cpp_numbers_it() -> None:
    from gguf import LlamaFileType

    for name, number in FILE_TYPES.items():
        expected = "ALL_F32" if name == "f32" else f"MOSTLY_{name.upper()}"
        assert LlamaFileType(number).name == expected


@pytest.mark.parametrize(
    ("backend", "quantization", "expected"),
    [
        (None, None, ("torch", "none", "none", "none")),
        (None, "int8", ("torch", "int8", "int8", "int8")),
        (None, "Q4_K_M", ("llamacpp", "q4_k_m", "none", "q4_k_m")),
        ("llamacpp", None, ("llamacpp", "none", "none", "gguf")),
        ("llamacpp", "q4k", ("llamacpp", "q4_k_m", "none", "q4_k_m")),
    ],
)
def test_the_quantization_settles_the_backend(
    backend: str | None, quantization: str | None, expected: tuple[str, ...]
) -> None:
    """The pipeline measures with torch: without GGUF types, which it does not compute with."""
    found = settings.load("smollm2-135m", overrides={"backend": backend, "quantization": quantization})
    assert (found.backend, found.quantization, found.torch_quantization, found.arithmetic) == expected


@pytest.mark.parametrize(
    ("backend", "quantization", "words"),
    [
        (
            "auto",
            "q4",
            r"quantization 'q4' is not known. Use none, int8, int4, or a type of GGUF files: f32, f16",
        ),
        ("torch", "q4k", r"does not compute with. Set backend \(--backend\) to llamacpp"),
        ("llamacpp", "int8", r"int8 is torch's; the backend llamacpp has f32.*Set quantization"),
    ],
)
def test_what_a_backend_does_not_have_is_refused(backend: str, quantization: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings.load("smollm2-135m", overrides={"backend": backend, "quantization": quantization})
