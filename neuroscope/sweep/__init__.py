"""The sweep: text through model and SAE in chunks, and the chunks merged into statistics and examples.

`run_shard` and `merge` are what the pipeline's rules call. A chunk's result depends on the chunk alone, so
however chunks are spread over shards, processes and restarts, the merged artefacts are the same bytes.
"""
