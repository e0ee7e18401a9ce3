# Sources -> documents; the model's own conversations about them; both together.


rule documents:
    input:
        own=local(SETTINGS.corpus.path or []),
    output:
        documents="<results>/documents.parquet",
        report="<results>/documents.json",
    log:
        "<results>/logs/documents.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "documents"),
        own=stages.own_texts(SETTINGS),
    script:
        "../scripts/documents.py"


rule chat:
    input:
        documents=rules.documents.output.documents,
    output:
        chat="<results>/chat.parquet",
    log:
        "<results>/logs/chat.log",
    conda:
        "../../environment.yml"
    threads: SETTINGS.sweep.threads
    resources:
        **MODEL_JOB,
    params:
        settings=stages.params(SETTINGS, "chat"),
    script:
        "../scripts/chat.py"


rule corpus:
    input:
        documents=rules.documents.output.documents,
        report=rules.documents.output.report,  # read beside it
        chat=rules.chat.output.chat,
    output:
        corpus="<results>/corpus.parquet",
        report="<results>/corpus.json",
    log:
        "<results>/logs/corpus.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "corpus"),
    script:
        "../scripts/corpus.py"
