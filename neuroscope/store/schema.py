"""The tables of results.duckdb as data: names, types and the comments a reader of the database sees.

Names and columns are a contract; columns may be added. How rows get in is `writing`'s business, how they are
read `results`'.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = 1
"""Changes when a table or column changes its meaning."""

STORAGE_VERSION = "v1.4.0"
"""Storage format of the file. DuckDB 2 otherwise writes one that 1.x command lines cannot open."""

WINDOW = 25
"""Token ids of a window: 12 before, the token, 12 after."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    comment: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    """Rows are stored in this order, so that one feature's rows lie together."""


FEATURE = Column("feature", "INTEGER", "index of the SAE feature, from 0")
SOURCE = Column("source", "VARCHAR", "who made the label: file, claude, openai, neuronpedia or tokens")

META = Table(
    "meta",
    "What made this database: fingerprint, schema version and the report of the sweep, as JSON text by key",
    (Column("key", "VARCHAR", "name of the entry"), Column("value", "VARCHAR", "its value, JSON text")),
    ("key",),
)
TOKENS = Table(
    "tokens",
    "The tokenizer's vocabulary",
    (
        Column("token_id", "INTEGER", "id in the model's vocabulary"),
        Column(
            "token", "VARCHAR", "the token's text; a byte inside a character shows as the replacement sign"
        ),
    ),
    ("token_id",),
)
FEATURES = Table(
    "features",
    "How often and how strongly each feature fires, per stratum of the corpus; stratum 'all' is the sum",
    (
        FEATURE,
        Column("stratum", "VARCHAR", "part of the corpus: encyclopedia, code, conversation, chat, or all"),
        Column(
            "n_tokens", "BIGINT", "tokens measured; special tokens, scaffold and outliers are not among them"
        ),
        Column("n_fired", "BIGINT", "tokens on which the feature is active"),
        Column("firing_rate", "DOUBLE", "n_fired / n_tokens"),
        Column(
            "mean_firing",
            "DOUBLE",
            "mean activation over the tokens on which it fires; null if it never does",
        ),
        Column("variance_firing", "DOUBLE", "population variance over the tokens on which it fires"),
        Column("mean_all", "DOUBLE", "mean activation over all tokens, zero where it is silent"),
        Column("variance_all", "DOUBLE", "population variance over all tokens, zero where it is silent"),
        Column("max_activation", "DOUBLE", "largest activation on any token; 0 if it never fires"),
        Column("log_density", "DOUBLE", "log10 of firing_rate; null if it never fires"),
        Column(
            "histogram",
            "BIGINT[]",
            "firings per log-spaced bin: below 2^-8, then two bins per octave, last from 2^16 up",
        ),
    ),
    ("feature", "stratum"),
)
EXAMPLES = Table(
    "examples",
    "Tokens on which a feature fires, with their context",
    (
        FEATURE,
        Column(
            "kind",
            "VARCHAR",
            "top: largest, one per document; sample: random; held_out: random over activation quantiles, "
            "from documents that labels are never made from",
        ),
        Column("rank", "INTEGER", "from 0; top by activation, the others in random order"),
        Column("activation", "FLOAT", "activation on the token"),
        Column("token_id", "INTEGER", "the token, in the middle of the window"),
        Column(
            "window", f"INTEGER[{WINDOW}]", "token ids, 12 before to 12 after; null beyond the text's ends"
        ),
        Column("text_before", "VARCHAR", "text of the window before the token"),
        Column("token", "VARCHAR", "text of the token"),
        Column("text_after", "VARCHAR", "text of the window after the token"),
        Column("doc_id", "VARCHAR", "document of the corpus, by the hash of its text"),
        Column("position", "INTEGER", "index of the token in its document, BOS not counted"),
        Column("stratum", "VARCHAR", "part of the corpus the document belongs to"),
    ),
    ("feature", "kind", "rank"),
)
LABELS = Table(
    "labels",
    "Names of features, every source kept; the view `feature` shows the one of rank 1",
    (
        FEATURE,
        SOURCE,
        Column(
            "label",
            "VARCHAR",
            "what the feature stands for; in at most 15 words where the label was made here",
        ),
        Column(
            "confidence",
            "VARCHAR",
            "high, medium or low, as the labeler judged, but low when the score is under min_score; null if unknown",
        ),
        Column("model", "VARCHAR", "the labeling model; null for a rule"),
        Column("method", "VARCHAR", "how the label was made"),
        Column("created_at", "VARCHAR", "when the label was made, ISO 8601; null if unknown"),
        Column(
            "rank",
            "INTEGER",
            "1 for the label that is shown, by the configured priority; within a source by its own order",
        ),
    ),
    ("feature", "rank"),
)
LABEL_STATES = Table(
    "label_states",
    "How each feature fared with each labeler, so that one without a label says why",
    (
        FEATURE,
        SOURCE,
        Column(
            "state",
            "VARCHAR",
            "labelled; dead or insufficient: not asked about; refused, truncated, invalid or failed: without a label",
        ),
        Column("reason", "VARCHAR", "more about the state, or what to know about the label; null if nothing"),
    ),
    ("feature", "source"),
)
SCORES = Table(
    "scores",
    "How well a label tells windows on which its feature fires from others (detection), or tokens (fuzzing)",
    (
        FEATURE,
        SOURCE,
        Column(
            "method",
            "VARCHAR",
            "detection or fuzzing by a language model, rule or rule_fuzzing by the label's rule; *_near_miss: against "
            "silent windows with the feature's tokens or neighbours",
        ),
        Column("balanced_accuracy", "DOUBLE", "(sensitivity + specificity) / 2 over held-out windows"),
        Column("low", "DOUBLE", "lower end of its 95% interval"),
        Column("high", "DOUBLE", "upper end of its 95% interval"),
        Column("tp", "INTEGER", "active windows recognised"),
        Column("fp", "INTEGER", "silent windows taken for active"),
        Column("tn", "INTEGER", "silent windows recognised"),
        Column("fn", "INTEGER", "active windows missed"),
        Column("failed", "INTEGER", "windows without a verdict; they are not in the score"),
    ),
    ("feature", "source", "method"),
)
LOGITS = Table(
    "logits",
    "Tokens whose prediction a feature's decoder direction raises or lowers most",
    (
        FEATURE,
        Column("kind", "VARCHAR", "promoted or suppressed"),
        Column("rank", "INTEGER", "from 0, strongest first"),
        Column("token_id", "INTEGER", "id in the model's vocabulary"),
        Column("token", "VARCHAR", "the token's text"),
        Column("weight", "DOUBLE", "logit per unit of activation"),
        Column("source", "VARCHAR", "neuronpedia where imported, then without ids; null where computed here"),
    ),
    ("feature", "kind", "rank"),
)
NEIGHBOURS = Table(
    "neighbours",
    "Features that fire on the same tokens, over the held-out pool of windows",
    (
        FEATURE,
        Column("other", "INTEGER", "a feature that fires with it"),
        Column("cofiring", "DOUBLE", "tokens on which both fire / tokens on which either does (Jaccard)"),
        Column("n_both", "BIGINT", "tokens of the pool on which both fire"),
    ),
    ("feature", "cofiring DESC", "other"),
)

TABLES = (META, TOKENS, FEATURES, EXAMPLES, LABELS, LABEL_STATES, SCORES, LOGITS, NEIGHBOURS)

FEATURE_VIEW = """
CREATE VIEW feature AS
SELECT f.feature, coalesce(l.label, 'feature_' || f.feature) AS label, l.source, l.confidence,
       s.balanced_accuracy, f.firing_rate, f.mean_firing, f.variance_firing, f.max_activation, f.n_fired,
       f.n_tokens, f.log_density, s.low, s.high, s.method AS score_method
FROM features f
LEFT JOIN (SELECT * FROM labels WHERE rank = 1) l ON l.feature = f.feature
LEFT JOIN (
    SELECT * FROM scores QUALIFY row_number() OVER (PARTITION BY feature, source ORDER BY method) = 1
) s ON s.feature = l.feature AND s.source = l.source
WHERE f.stratum = 'all'
ORDER BY f.feature
"""
FEATURE_VIEW_COMMENT = (
    "One row per feature: its best label, that label's score, and how it fires over all strata"
)
