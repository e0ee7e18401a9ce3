"""Are the numbers right? A self-test of the loaded model, SAE and tokenizer on real text.

`verify_subject` runs the checks; `verify_pairing` is the pipeline's call. What a check compares with is written
apart from what it checks: float64 arithmetic, the input of the next module, one pass over the whole text.
"""

from __future__ import annotations

from neuroscope.verify.report import verify_subject
from neuroscope.verify.stage import verify_pairing
from neuroscope.verify.subject import Subject

__all__ = ["Subject", "verify_pairing", "verify_subject"]
