"""A context of llama.cpp: the cache of one sequence and what passes need, made alike wherever a file is run."""

from __future__ import annotations

from typing import Any

from neuroscope.models.llamacpp_library import llama
from neuroscope.models.llamacpp_tap import Tap

CELL = 64
"""Positions of one graph at most: the prompt's cells."""
CONTEXT = 8192
"""Positions at most: the whole cache is taken when the model is opened, for 128k positions gigabytes."""


def new_context(model: Any, positions: int, threads: int, tap: Tap | None = None) -> Any:
    """For one sequence of `positions`, and a second for what is copied; None where llama.cpp cannot."""
    library = llama()
    wanted = library.llama_context_default_params()  # keys and values in half precision, as llama.cpp itself
    wanted.n_ctx, wanted.n_batch, wanted.n_ubatch = positions, CELL, CELL
    wanted.n_threads = wanted.n_threads_batch = threads
    wanted.n_seq_max, wanted.kv_unified = 2, True
    # Else what lies before a sliding window is gone, and no prompt can be cut back.
    wanted.swa_full = True
    wanted.no_perf = True
    if tap is not None:
        wanted.cb_eval, wanted.cb_eval_user_data = tap.callback, tap.user_data
    return library.llama_init_from_model(model, wanted)
