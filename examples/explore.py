# %% [markdown]
# The results of the pipeline with Polars: which features are rare, which labels hold, and what excites one feature.
# Open this file as a notebook (VS Code, PyCharm, `jupytext`), or run it: `python explore.py [RESULTS.duckdb] [FOLDER]`
# writes its plots to FOLDER (default: here).

# %%
import sys
from pathlib import Path

import duckdb
import matplotlib.pyplot as plt
import polars as pl

given = [
    word for word in sys.argv[1:] if not word.startswith("-")
]  # a notebook's own arguments are none of ours
database = given[0] if given else "results/smollm2-135m/results.duckdb"
folder = Path(given[1] if len(given) > 1 else ".")
folder.mkdir(parents=True, exist_ok=True)

con = duckdb.connect(database, read_only=True)  # read-only: the server may have it open too


def table(query: str, *parameters: object) -> pl.DataFrame:
    """What a query answers. With pyarrow installed, `con.sql(query).pl()` does the same."""
    found = con.execute(query, parameters)
    return pl.DataFrame(
        found.fetchall(), schema=[c[0] for c in found.description], orient="row", infer_schema_length=None
    )


features = table("SELECT * FROM feature")
print(f"{len(features):,} features, {features['n_tokens'][0]:,} tokens measured")

# %% [markdown]
# How often features fire. A feature that fires on most tokens says little about any of them; one that never fired
# cannot be named.

# %%
dead = features.filter(pl.col("n_fired") == 0)
common = features.filter(pl.col("firing_rate") > 0.1).sort("firing_rate", descending=True)
print(f"{len(dead)} never fired, {len(common)} fire on more than a tenth of all tokens")
print(common.select("feature", "label", "firing_rate").head())

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.hist(features.drop_nulls("log_density")["log_density"].to_list(), bins=60)
axes.set(xlabel="log10 of firing rate", ylabel="features", title="How often features fire")
figure.savefig(folder / "firing-rates.png", dpi=120)

# %% [markdown]
# Which labels hold. Balanced accuracy is measured on texts that no label was made from; 0.5 is chance. The interval
# matters: a label can look good by luck when there are few texts.

# %%
scored = features.drop_nulls("balanced_accuracy")
if len(scored):
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for (confidence,), rows in scored.group_by("confidence", maintain_order=True):
        axes.hist(
            rows["balanced_accuracy"].to_list(),
            bins=40,
            range=(0.3, 1),
            histtype="step",
            label=confidence or "unknown",
        )
    axes.axvline(0.5, color="grey", linestyle=":")
    axes.set(xlabel="balanced accuracy", ylabel="labels", title="How well labels hold")
    axes.legend()
    figure.savefig(folder / "scores.png", dpi=120)
    sure = scored.filter((pl.col("low") > 0.7) & (pl.col("n_fired") >= 50)).sort("low", descending=True)
    print(f"{len(sure)} labels hold with 95% certainty above 0.7")
    print(sure.select("feature", "label", "low", "balanced_accuracy", "high").head(10))

# %% [markdown]
# What excites one feature: parameters of a query, never text put together.

# %%
one = (sure if len(scored) and len(sure) else features.sort("n_fired", descending=True))["feature"][0]
examples = table(
    """SELECT text_before, token, text_after, activation FROM examples
    WHERE feature = ? AND kind = 'top' ORDER BY rank LIMIT 5""",
    one,
)
print(f"feature {one}: {features.row(by_predicate=pl.col('feature') == one, named=True)['label']}")
for before, token, after, activation in examples.iter_rows():
    print(f"{activation:8.1f}  {before[-40:]!r} [{token}] {after[:40]!r}")
