# The pairing's sparse autoencoder: fetched, checked, and where it lies.


rule sae:
    input:
        own=LOCAL_SAE,
    output:
        provenance="<results>/sae/provenance.json",
    log:
        "<results>/logs/sae.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "sae"),
    script:
        "../scripts/sae.py"
