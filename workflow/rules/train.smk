# Trains an SAE on the pairing's model and corpus. Nothing else asks for it: `snakemake train`, then name the result in
# a pairing file (sae.source).


rule train:
    input:
        corpus=rules.corpus.output.corpus,
        report=rules.corpus.output.report,  # read beside it
    output:
        params="<results>/training/params.npz",
        card="<results>/training/card.json",
    log:
        "<results>/logs/train.log",
    conda:
        "../../environment.yml"
    threads: SETTINGS.sweep.threads
    resources:
        **MODEL_JOB,
    params:
        settings=stages.params(SETTINGS, "train"),
    script:
        "../scripts/train.py"
