# Everything above in one database, checked and renamed into its place; an earlier one stays until then.


rule results:
    input:
        stats=rules.examples.output.stats,
        stats_json=rules.examples.output.stats_json,
        examples=rules.examples.output.examples,
        neighbours=rules.examples.output.neighbours,
        report=rules.examples.output.report,
        logits=rules.logits.output.logits,
        labels=MADE + IMPORTED,
        states=[labeler.output.states for labeler in LABELERS],
        scores=rules.score.output.scores if SETTINGS.labels.score else [],
    output:
        database=update("<results>/results.duckdb"),
        manifest=update("<results>/manifest.json"),
        labels_json=update("<results>/labels.json"),
    log:
        "<results>/logs/results.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4000,
    params:
        settings=stages.params(SETTINGS, "results"),
        kept=KEPT,
    script:
        "../scripts/results.py"


rule labels:
    input:
        rules.results.output,


rule scores:
    input:
        rules.score.output.scores,
        rules.results.output,
