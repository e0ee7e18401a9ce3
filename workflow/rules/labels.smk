# Names of features: the tokens each promotes, its label, and the label's score on texts that it was not made from.


rule logits:
    input:
        sae=rules.sae.output.provenance,
    output:
        logits=update("<results>/logits.parquet"),
    log:
        "<results>/logs/logits.log",
    conda:
        "../../environment.yml"
    threads: SETTINGS.sweep.threads
    resources:
        **MODEL_JOB,
    params:
        settings=stages.params(SETTINGS, "logits"),
    script:
        "../scripts/logits.py"


rule label:
    input:
        examples=rules.examples.output.examples,
        pool=rules.examples.output.pool,
        stats=rules.examples.output.stats,
        logits=rules.logits.output.logits,
    output:
        labels=update("<results>/labels/tokens.parquet"),
    log:
        "<results>/logs/label.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "label"),
    script:
        "../scripts/label.py"


rule score:
    input:
        labels=[rules.label.output.labels],
        examples=rules.examples.output.examples,
        pool=rules.examples.output.pool,
    output:
        scores=update("<results>/scores.parquet"),
    log:
        "<results>/logs/score.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "score"),
    script:
        "../scripts/score.py"
