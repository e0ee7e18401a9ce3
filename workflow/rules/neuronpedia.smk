# What Neuronpedia publishes about the pairing's SAE. Nothing asks for it: `snakemake neuronpedia` (with examples:
# `neuronpedia_examples`), or `neuroscope labels import neuronpedia`. Once imported, it is an input of what shows it.


rule neuronpedia:
    output:
        labels=update("<results>/labels/neuronpedia.parquet"),
        prior=update("<results>/neuronpedia.parquet"),
        logits=update("<results>/neuronpedia_logits.parquet"),
        report=update("<results>/neuronpedia.json"),
    log:
        "<results>/logs/neuronpedia.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "neuronpedia"),
    script:
        "../scripts/neuronpedia.py"


rule neuronpedia_examples:
    output:
        examples=update("<results>/neuronpedia_examples.parquet"),
        report=update("<results>/neuronpedia_examples.json"),
    log:
        "<results>/logs/neuronpedia-examples.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4000,
    params:
        settings=stages.params(SETTINGS, "neuronpedia_examples"),
    script:
        "../scripts/neuronpedia_examples.py"
