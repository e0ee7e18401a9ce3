"""The sweep: text through model and SAE in chunks, and the chunks merged into statistics and examples.

`run_shard` and `merge` are what the pipeline's rules call. A chunk's result depends on the chunk alone, so
however chunks are spread over shards, processes and restarts, the merged artefacts are the same bytes.
"""

from __future__ import annotations

from neuroscope.sweep.plan import Chunk, SweepOptions, plan_chunks
from neuroscope.sweep.stage import merge, planned, run_shard, sweep_options

__all__ = ["Chunk", "SweepOptions", "merge", "plan_chunks", "planned", "run_shard", "sweep_options"]
