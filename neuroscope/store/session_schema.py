"""The tables of sessions.duckdb as data, with the comments a reader of the database sees."""

from __future__ import annotations

from neuroscope.store.schema import Column, Table

SESSIONS_VERSION = 1
"""Changes when a table or column changes its meaning; a file of another version is made anew from the recordings."""

SESSION = Column("session", "VARCHAR", "id of the recording, the name of its file in sessions/")
PLACE = Column("place", "VARCHAR", "prompt or answer")
TOKEN_INDEX = Column("token_index", "INTEGER", "place of the token in the prompt or in the answer, from 0")

SESSIONS = Table(
    "sessions",
    "Recorded generations; the files in sessions/ are the originals, this database is made from them",
    (
        SESSION,
        Column("created_at", "VARCHAR", "when it was recorded, ISO 8601 in UTC"),
        Column("title", "VARCHAR", "what it was called, or how its question or text begins"),
        Column("model", "VARCHAR", "id of the model that wrote it"),
        Column("pairing", "VARCHAR", "name of the pairing of model and SAE"),
        Column("layer", "INTEGER", "decoder layer whose output the SAE reads, from 0"),
        Column("sae_id", "VARCHAR", "name of the SAE"),
        Column("completion_id", "VARCHAR", "id of the answer on the server that wrote it"),
        Column("finish_reason", "VARCHAR", "why the answer ended: stop, length, cancelled or shutdown"),
        Column("prompt_tokens", "INTEGER", "tokens of the prompt; 0 where its features were not asked for"),
        Column("total_tokens", "INTEGER", "tokens of the answer, the end of turn not counted"),
        Column("file_bytes", "BIGINT", "size of the file when it was read"),
        Column("file_changed_ns", "BIGINT", "when the file was changed last, in nanoseconds since 1970"),
    ),
    ("created_at", "session"),
)
TOKENS = Table(
    "tokens",
    "The tokens of each recording, prompt and answer",
    (
        SESSION,
        PLACE,
        TOKEN_INDEX,
        Column("position", "INTEGER", "position in the model's context, the prompt included"),
        Column("token_id", "INTEGER", "id in the model's vocabulary"),
        Column("token", "VARCHAR", "the text it adds; empty inside a character and at the end of turn"),
        Column("l0", "INTEGER", "features active on it, before any filter"),
        Column("fvu", "DOUBLE", "squared error of the reconstruction by the squared norm; null if unknown"),
    ),
    ("session", "position"),
)
ACTIVATIONS = Table(
    "activations",
    "Every active feature of every token, unfiltered",
    (
        SESSION,
        PLACE,
        TOKEN_INDEX,
        Column("feature", "INTEGER", "index of the SAE feature, from 0"),
        Column("label", "VARCHAR", "its label when it was recorded"),
        Column("activation", "FLOAT", "its activation on the token"),
        Column("surprise", "DOUBLE", "z-score against the feature's own firings; null where unknown"),
    ),
    ("session", "place", "token_index"),
)
VERSION = Table(
    "version",
    "Version of these tables",
    (Column("version", "INTEGER", "rises when a table or column changes its meaning"),),
    ("version",),
)
SESSION_TABLES = (VERSION, SESSIONS, TOKENS, ACTIVATIONS)
