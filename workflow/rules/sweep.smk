# Text through model and SAE, in shards; the shards' chunks merged into statistics, examples and the pool of windows.
# Finished chunks are cached in chunks/, so a shard that runs again only does what is missing.


rule shard:
    input:
        corpus=rules.corpus.output.corpus,
        sae=rules.sae.output.provenance,
    output:
        chunks="<results>/shards/{k}.json",
    log:
        "<results>/logs/shard-{k}.log",
    conda:
        "../../environment.yml"
    threads: SETTINGS.sweep.threads
    resources:
        **MODEL_JOB,
    params:
        settings=stages.params(SETTINGS, "shard"),
        samples=SETTINGS.examples.samples,
        shards=SETTINGS.sweep.shards,
    script:
        "../scripts/shard.py"


rule examples:
    input:
        corpus=rules.corpus.output.corpus,
        shards=expand("<results>/shards/{k}.json", k=SHARDS),
    output:
        stats=update("<results>/stats.parquet"),
        examples=update("<results>/examples.parquet"),
        pool=update("<results>/pool.parquet"),
        neighbours=update("<results>/neighbours.parquet"),
        report=update("<results>/sweep.json"),
        stats_json=update("<results>/stats.json"),
    log:
        "<results>/logs/examples.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
    params:
        settings=stages.params(SETTINGS, "examples"),
        samples=SETTINGS.examples.samples,
    script:
        "../scripts/merge.py"
