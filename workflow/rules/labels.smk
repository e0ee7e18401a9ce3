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
        states=update("<results>/labels/tokens.states.parquet"),
    log:
        "<results>/logs/label.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "label"),
    script:
        "../scripts/label.py"


# A language model's labels. Each answer is in labels/ledger.jsonl, which is no output: none is paid for twice.
rule claude:
    input:
        examples=rules.examples.output.examples,
        stats=rules.examples.output.stats,
        logits=rules.logits.output.logits,
        prompts=local(stages.prompts("label")),
    output:
        labels=update("<results>/labels/claude.parquet"),
        states=update("<results>/labels/claude.states.parquet"),
    log:
        "<results>/logs/claude.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "ask"),
    script:
        "../scripts/ask.py"


use rule claude as openai with:
    output:
        labels=update("<results>/labels/openai.parquet"),
        states=update("<results>/labels/openai.states.parquet"),
    log:
        "<results>/logs/openai.log",


rule own_labels:
    input:
        stats=rules.examples.output.stats,
        labels=local(SETTINGS.labels.file or []),
    output:
        labels=update("<results>/labels/file.parquet"),
        states=update("<results>/labels/file.states.parquet"),
    log:
        "<results>/logs/own_labels.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "own_labels"),
    script:
        "../scripts/own_labels.py"


# The labeler's own labels first; those of `tokens` stand in where it has none.
LABELERS = {
    "claude": [rules.claude],
    "openai": [rules.openai],
    "file": [rules.own_labels],
    "tokens": [],
}[SETTINGS.labels.source] + [rules.label]
MADE = [labeler.output.labels for labeler in LABELERS]
IMPORTED = stages.imported(SETTINGS, "labels/neuronpedia.parquet")
KEPT = stages.kept(SETTINGS)


rule score:
    input:
        labels=MADE + (IMPORTED if SETTINGS.labels.judge else []),  # they are in words
        examples=rules.examples.output.examples,
        pool=rules.examples.output.pool,
        neighbours=rules.examples.output.neighbours,
        prompts=local(stages.prompts("score") if SETTINGS.labels.judge else []),
    output:
        scores=update("<results>/scores.parquet"),
    log:
        "<results>/logs/score.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "score"),
        kept=KEPT,
    script:
        "../scripts/score.py"
