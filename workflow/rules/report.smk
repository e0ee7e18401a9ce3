# What the results say, in six plots and on one page: for people, and for `snakemake --report`.


rule report:
    input:
        database=rules.results.output.database,
        manifest=rules.results.output.manifest,  # vouches for it
    output:
        html=report(
            "<results>/report.html",
            caption="../report/page.rst",
            category="Summary",
        ),
        record="<results>/report/report.json",
        plots=[
            report(
                "<results>/report/firing-rates.svg",
                caption="../report/firing-rates.rst",
                category="Features",
            ),
            report(
                "<results>/report/active-features.svg",
                caption="../report/active-features.rst",
                category="Tokens",
            ),
            report(
                "<results>/report/activations.svg",
                caption="../report/activations.rst",
                category="Features",
            ),
            report(
                "<results>/report/label-scores.svg",
                caption="../report/label-scores.rst",
                category="Labels",
            ),
            report(
                "<results>/report/coverage.svg",
                caption="../report/coverage.rst",
                category="Tokens",
            ),
            report(
                "<results>/report/drift.svg",
                caption="../report/drift.rst",
                category="Tokens",
            ),
        ],
    log:
        "<results>/logs/report.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=stages.params(SETTINGS, "report"),
        verification=stages.verification(SETTINGS),
    script:
        "../scripts/report.py"
