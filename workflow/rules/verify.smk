# Are the numbers right? The loaded model, SAE and tokenizer tested on text of the corpus.


rule verify:
    input:
        corpus=rules.corpus.output.corpus,
        sae=rules.sae.output.provenance,
        examples=stages.imported(SETTINGS, "neuronpedia_examples.parquet"),
    output:
        report="<results>/verification.json",
    log:
        "<results>/logs/verify.log",
    conda:
        "../../environment.yml"
    threads: SETTINGS.sweep.threads
    resources:
        **MODEL_JOB,
    params:
        settings=stages.params(SETTINGS, "verify"),
    script:
        "../scripts/verify.py"
