# What every rule needs: the settings, where results lie, what a job with a language model asks for.

SETTINGS = settings.from_snakemake(config, files=workflow.configfiles)
RESULTS = os.path.relpath(SETTINGS.results)


pathvars:
    results=RESULTS,


# A job on another machine sees the pairing that it was submitted for.
for name in ("NEUROSCOPE_PAIRING", "NEUROSCOPE_CONFIG"):
    if name in os.environ:

        envvars:
            name,


wildcard_constraints:
    k="[0-9]+",


# One at a time on this machine (`model`, see profiles/default), so that `--cores 8` does not load eight of them.
# On a cluster the others say what to ask for; workflow/profiles has it for Slurm and Kubernetes. Without a GPU there is
# no `gpu`: Kubernetes takes 0 of them for a wish.
MODEL_JOB = {
    "model": 1,
    "mem_mb": 16000,
    **({"gpu": 1} if SETTINGS.device.startswith("cuda") else {}),
}
SHARDS = range(SETTINGS.sweep.shards)

# An SAE that is a file here is an input: another one in its place is noticed. `local`, as with all that no rule makes:
# it is read where it lies, also where Snakemake keeps results in a storage of its own (Kubernetes).
LOCAL_SAE = local(
    [SETTINGS.pairing.sae.uri] if os.path.isfile(SETTINGS.pairing.sae.uri) else []
)
