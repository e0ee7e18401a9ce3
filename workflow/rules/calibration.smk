# The same sweep over fewer documents, for firing rates alone. Its chunks are those that a full sweep begins with.
# It ends with results.duckdb too, but leaves the database of a full run alone; so it has no output of its own and looks
# each time.


use rule shard as calibration_shard with:
    output:
        chunks="<results>/calibration/shards/{k}.json",
    log:
        "<results>/logs/calibration-shard-{k}.log",
    params:
        settings=stages.params(SETTINGS, "calibration_shard"),
        samples=SETTINGS.calibration.samples,
        shards=SETTINGS.sweep.shards,


use rule examples as calibration_merge with:
    input:
        corpus=rules.corpus.output.corpus,
        shards=expand("<results>/calibration/shards/{k}.json", k=SHARDS),
    output:
        stats=update("<results>/calibration/stats.parquet"),
        examples=update("<results>/calibration/examples.parquet"),
        pool=update("<results>/calibration/pool.parquet"),
        neighbours=update("<results>/calibration/neighbours.parquet"),
        report=update("<results>/calibration/sweep.json"),
        stats_json=update("<results>/calibration/stats.json"),
    log:
        "<results>/logs/calibration-merge.log",
    params:
        settings=stages.params(SETTINGS, "calibration_merge"),
        samples=SETTINGS.calibration.samples,


rule calibration:
    input:
        stats=rules.calibration_merge.output.stats,
        stats_json=rules.calibration_merge.output.stats_json,
        examples=rules.calibration_merge.output.examples,
        neighbours=rules.calibration_merge.output.neighbours,
        report=rules.calibration_merge.output.report,
        logits=stages.imported(SETTINGS, "neuronpedia_logits.parquet"),
    log:
        "<results>/logs/calibration.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "calibration"),
        database=f"{RESULTS}/results.duckdb",
    script:
        "../scripts/calibration.py"
