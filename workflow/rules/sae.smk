# The pairing's sparse autoencoder: fetched, checked, and where it lies.


rule sae:
    input:
        own=LOCAL_SAE,
    output:
        provenance="<results>/sae/provenance.json",
    log:
        "<results>/logs/sae.log",
    params:
        settings=stages.params(SETTINGS, "sae"),
    conda:
        "../../environment.yml"
    threads: 1
    script:
        "../scripts/sae.py"
