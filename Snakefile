# Neuroscope's pipeline: a table of contents. Targets: corpus, calibration, examples, labels, scores, verify,
# report, neuronpedia, train, all.
#
#   snakemake --cores 8 labels
#   NEUROSCOPE_PAIRING=smollm2-135m snakemake --cores 2 labels
#
# A stage is one file in workflow/rules; a script is one call into the library; settings are config/config.yaml.
import os

from snakemake.utils import min_version

from neuroscope import jobs, settings, stages

min_version("9.27")
jobs.quote_interpreter()
jobs.end_with_starter()
settings.choose_pairing(config)  # the command line's alone so far


configfile: settings.config_path(settings.repository_root(), None)


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/sae.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/neuronpedia.smk"
include: "workflow/rules/calibration.smk"
include: "workflow/rules/labels.smk"
include: "workflow/rules/results.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/verify.smk"
include: "workflow/rules/train.smk"


onstart:
    jobs.begin(SETTINGS.results)


onerror:
    jobs.tell_failures(SETTINGS.results)


rule all:
    default_target: True
    input:
        rules.labels.input,
        rules.scores.input,
        rules.report.output,
