"""results.duckdb: its tables are a contract, its numbers those of the sweep, its file whole or absent."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from tiny_sweep import make_fingerprint

from neuroscope import store
from neuroscope.errors import ArtefactError
from neuroscope.labels import Label
from neuroscope.stats import CalibrationStats, FeatureStats
from neuroscope.store import FeatureLabel, Results, build, frames, open_results
from neuroscope.store.schema import TABLES
from neuroscope.sweep.merging import stats_frame

D_SAE = 6
FINGERPRINT = make_fingerprint(d_sae=D_SAE)
TOKENS = [
    b"<s>",
    b" the",
    b"cat",
    "é".encode()[:1],
    "é".encode()[1:],
    b"\0",
    "😀".encode(),
    "שלום".encode(),
    b"\n",
]
LABELS = [
    Label(0, "tokens", "cats and dogs", "high", None, "rule", "2026-01-01T00:00:00Z"),
    Label(0, "claude", "animals 😀 שלום \0 \ud800", "low", "model", "prompt"),
    Label(1, "tokens", "line\nbreak 100% _x_"),
    Label(2, "neuronpedia", "Paris"),
]

CONTRACT = {
    "meta": "key value",
    "tokens": "token_id token",
    "features": "feature stratum n_tokens n_fired firing_rate mean_firing variance_firing mean_all variance_all "
    "max_activation log_density histogram",
    "examples": "feature kind rank activation token_id window text_before token text_after doc_id position stratum",
    "labels": "feature source label confidence model method created_at",
    "label_states": "feature source state reason",
    "scores": "feature source method balanced_accuracy low high tp fp tn fn failed",
    "logits": "feature kind rank token_id token weight",
    "neighbours": "feature other cofiring",
    "feature": "feature label source confidence balanced_accuracy firing_rate mean_firing variance_firing "
    "max_activation n_fired",
}


def stats_by_stratum() -> dict[str, FeatureStats]:
    """Feature 5 never fires."""
    found = {}
    for number, stratum in enumerate(("all", "chat")):
        generator = np.random.default_rng(number)
        stats = FeatureStats(D_SAE)
        features = np.sort(generator.integers(0, D_SAE - 1, 300))
        stats.add(features, generator.gamma(2, 2, 300).astype(np.float32), np.full(100, 3))
        found[stratum] = stats
    return found


def examples() -> pl.DataFrame:
    windows = np.full((3, 25), -1, np.int32)
    windows[0, 10:16] = [1, 2, 6, 3, 4, 8]
    windows[1, 12] = 5
    windows[2] = 7
    return pl.DataFrame(
        {
            "feature": pl.Series([0, 0, 2], dtype=pl.Int32),
            "kind": ["top", "held_out", "top"],
            "rank": pl.Series([0, 0, 0], dtype=pl.Int32),
            "activation": pl.Series([3.5, 1.5, 9.0], dtype=pl.Float32),
            "token_id": windows[:, 12],
            "window": pl.Series(windows, dtype=pl.Array(pl.Int32, 25)),
            "doc_id": ["aa", "bb", "cc"],
            "position": pl.Series([2, 0, 40], dtype=pl.Int32),
            "stratum": ["chat", "code", "code"],
        }
    )


def scores() -> pl.DataFrame:
    rows = [
        (0, "claude", "detection", 0.9, 0.8, 0.95, 9, 1, 9, 1, 0),
        (0, "tokens", "detection", 0.55, 0.4, 0.7, 5, 4, 6, 5, 0),
        (0, "claude", "fuzzing", 0.7, 0.6, 0.8, 7, 3, 7, 3, 1),
        (1, "tokens", "detection", 0.5, 0.3, 0.7, 5, 5, 5, 5, 2),
        (2, "neuronpedia", "detection", None, None, None, 0, 0, 0, 0, 20),
    ]
    names = CONTRACT["scores"].split()
    return pl.DataFrame(rows, schema=names, orient="row")


def build_small(folder: Path, **changes: Any) -> Path:
    path = folder / "results.duckdb"
    logits = pl.DataFrame(
        [(0, "promoted", 0, 2, "cat", 1.5), (0, "suppressed", 0, 1, " the", -1.0)],
        schema=CONTRACT["logits"].split(),
        orient="row",
    )
    neighbours = pl.DataFrame({"feature": [0, 0], "other": [1, 2], "cofiring": [0.2, 0.4], "n_both": [3, 6]})
    given: dict[str, Any] = {
        "fingerprint": FINGERPRINT,
        "stats": stats_frame(stats_by_stratum()),
        "examples": examples(),
        "tokens": TOKENS,
        "labels": LABELS,
        "scores": scores(),
        "logits": logits,
        "neighbours": neighbours,
        "report": {"outliers": 3},
    }
    build(path, **{**given, **changes})
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("results"))


@pytest.fixture
def results(path: Path):
    with open_results(path) as opened:
        yield opened


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """As any other program would ask."""
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_tables_and_columns_are_the_contract(path: Path) -> None:
    found: dict[str, list[str]] = {}
    for table, column in query(
        path, "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
    ):
        found.setdefault(table, []).append(column)
    assert set(found) == set(CONTRACT)
    for table, columns in CONTRACT.items():
        wanted = columns.split()
        assert [column for column in found[table] if column in wanted] == wanted, table


def test_every_table_and_column_says_what_it_is(path: Path) -> None:
    silent = query(
        path,
        "SELECT table_name, NULL FROM duckdb_tables() WHERE comment IS NULL UNION ALL "
        "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL "
        "AND table_name != 'feature' UNION ALL "
        "SELECT view_name, NULL FROM duckdb_views() WHERE NOT internal AND comment IS NULL",
    )
    assert silent == []


def test_windows_are_arrays_of_25_with_null_where_the_text_ends(path: Path) -> None:
    ((window, kind),) = query(
        path, """SELECT "window", typeof("window") FROM examples WHERE feature = 0 AND kind = 'top'"""
    )
    assert kind == "INTEGER[25]"
    assert list(window) == [None] * 10 + [1, 2, 6, 3, 4, 8] + [None] * 9


def test_texts_of_an_example_join_characters_that_span_tokens(path: Path) -> None:
    rows = query(path, "SELECT text_before, token, text_after FROM examples ORDER BY feature, kind")
    assert rows == [("", "\0", ""), (" thecat", "😀", "é\n"), ("שלום" * 12, "שלום", "שלום" * 12)]


def test_texts_are_the_joined_bytes_however_many_windows_are_joined_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = np.random.default_rng(1).integers(-1, len(TOKENS), (7, 12)).astype(np.int32)
    ids[3] = -1
    joined = [b"".join(TOKENS[i] for i in row if i >= 0) for row in ids]
    for at_once in (1, 3, 100):
        monkeypatch.setattr(frames, "ROWS_AT_ONCE", at_once)
        assert frames._texts(ids, TOKENS).to_list() == [text.decode("utf-8", "replace") for text in joined]


def test_rows_are_stored_in_their_tables_order(tmp_path: Path) -> None:
    connection = duckdb.connect(str(build_small(tmp_path, examples=examples().reverse())), read_only=True)
    for table in TABLES:
        stored = connection.execute(f"SELECT * FROM {table.name} ORDER BY rowid").fetchall()
        ordered = connection.execute(
            f"SELECT * FROM {table.name} ORDER BY {', '.join(table.order)}"
        ).fetchall()
        assert stored == ordered, table.name
    connection.close()


def test_a_token_of_half_a_character_shows_the_replacement_sign(path: Path) -> None:
    assert query(path, "SELECT token FROM tokens WHERE token_id IN (3, 5, 6) ORDER BY token_id") == [
        ("\ufffd",),
        ("\0",),
        ("😀",),
    ]


@pytest.mark.parametrize("stratum", ["all", "chat"])
def test_statistics_read_back_are_those_of_the_sweep(results: Results, stratum: str) -> None:
    expected = stats_by_stratum()[stratum].finish()
    found = results.stats(stratum)
    assert isinstance(found, CalibrationStats)
    assert found.n_tokens == expected.n_tokens == 100
    for name in ("n_fired", "mean_firing", "variance_firing", "mean_all", "variance_all", "max_activation"):
        assert np.array_equal(getattr(found, name), getattr(expected, name), equal_nan=True), name


def test_a_feature_that_never_fires_has_nulls_not_nans(path: Path) -> None:
    rows = query(path, "SELECT mean_firing, log_density, firing_rate FROM feature WHERE feature = 5")
    assert rows == [(None, None, 0.0)]
    assert query(path, "SELECT max(mean_firing) FROM features")[0][0] > 0  # a NaN would win


def test_an_unknown_stratum_names_those_there_are(results: Results) -> None:
    assert results.strata() == ["all", "chat"]
    with pytest.raises(ArtefactError, match=r"'code'.*It has: all, chat"):
        results.stats("code")


def test_scores_are_read_by_source_and_method_with_nan_for_none(results: Results) -> None:
    found = results.scores()
    assert {key: values.tolist() for key, values in found.items() if key[0] != "neuronpedia"} == {
        ("claude", "detection"): [0.9],
        ("claude", "fuzzing"): [0.7],
        ("tokens", "detection"): [0.55, 0.5],
    }
    assert np.isnan(found["neuronpedia", "detection"]).tolist() == [True]


def test_the_label_shown_follows_the_priority(results: Results) -> None:
    assert results.labels() == [
        FeatureLabel(0, "animals 😀 שלום \0 ?", "claude", "low", 0.9),
        FeatureLabel(1, "line\nbreak 100% _x_", "tokens", "low", 0.5),
        FeatureLabel(2, "Paris", "neuronpedia", None, None),
    ]


def test_the_view_has_one_row_per_feature_and_calls_nameless_ones_by_number(path: Path) -> None:
    rows = query(path, "SELECT feature, label, source FROM feature")
    assert [row[0] for row in rows] == list(range(D_SAE))
    assert rows[3] == (3, "feature_3", None)


def test_a_feature_asked_for_by_number_is_its_row_of_the_view(tmp_path: Path) -> None:
    labels = [*LABELS, Label(3, "tokens", "without a score"), Label(1, "unknown", "of no priority")]
    with open_results(build_small(tmp_path, labels=labels, min_score=0.6, replace_low=True)) as results:
        rows = results._rows("SELECT * FROM results.feature")
        assert [row["feature"] for row in rows] == list(range(D_SAE))
        for row in rows:
            found = results.feature(row["feature"])
            assert found is not None
            assert list(found.items())[: len(row)] == list(row.items())


def test_lists_of_a_feature_are_in_order_however_they_were_stored(tmp_path: Path) -> None:
    path = build_small(tmp_path)
    with open_results(path) as results:
        expected = results.feature(0), results.examples(0, "top")
    connection = duckdb.connect(str(path))
    for table in ("features", "labels", "scores", "logits", "neighbours", "examples"):
        connection.execute(f"CREATE TABLE turned AS SELECT * FROM {table} ORDER BY rowid DESC")
        connection.execute(f"DELETE FROM {table}")
        connection.execute(f"INSERT INTO {table} SELECT * FROM turned")
        connection.execute("DROP TABLE turned")
    connection.close()
    with open_results(path, check=False) as results:
        assert (results.feature(0), results.examples(0, "top")) == expected


def test_labels_under_the_minimum_give_way_when_asked(tmp_path: Path) -> None:
    path = build_small(tmp_path, priority=["tokens", "claude", "neuronpedia"], replace_low=True)
    with open_results(path) as results:
        assert [(label.feature, label.source) for label in results.labels()] == [
            (0, "claude"),
            (2, "neuronpedia"),
        ]
    ranks = query(path, "SELECT feature, source, rank FROM labels ORDER BY feature, rank")
    assert ranks == [(0, "claude", 1), (0, "tokens", 2), (1, "tokens", 2), (2, "neuronpedia", 1)]


def test_a_feature_is_told_with_all_that_is_known(results: Results) -> None:
    feature = results.feature(0)
    assert feature is not None
    assert feature["label"].startswith("animals")
    assert [(label["rank"], label["source"]) for label in feature["labels"]] == [(1, "claude"), (2, "tokens")]
    assert [row["method"] for row in feature["scores"]] == ["detection", "fuzzing", "detection"]
    assert [(row["kind"], row["token"]) for row in feature["logits"]] == [
        ("promoted", "cat"),
        ("suppressed", " the"),
    ]
    assert [(row["other"], row["label"]) for row in feature["neighbours"]] == [
        (2, "Paris"),
        (1, "line\nbreak 100% _x_"),
    ]
    assert sum(feature["histogram"]) == feature["n_fired"]
    assert {row["stratum"] for row in feature["strata"]} == {"all", "chat"}
    assert results.feature(D_SAE) is None
    assert results.feature(-1) is None


def test_examples_come_by_kind_and_rank(results: Results) -> None:
    (example,) = results.examples(0)
    assert (example["doc_id"], example["token"], example["activation"]) == ("aa", "😀", 3.5)
    assert results.examples(0, "held_out")[0]["doc_id"] == "bb"
    assert results.examples(0, "top", 0) == []
    with pytest.raises(ValueError, match="choose one of top, sample, held_out"):
        results.examples(0, "best")


def test_texts_of_tokens_are_those_of_the_vocabulary(results: Results) -> None:
    assert results.token_texts({1, 2, 6, 10_000}) == {1: " the", 2: "cat", 6: "😀"}


def test_labels_that_are_not_shown_are_told_with_their_sources(results: Results) -> None:
    assert [(row["feature"], row["source"]) for row in results.other_labels()] == [(0, "tokens")]


def test_meta_says_what_made_the_database(results: Results) -> None:
    assert results.fingerprint() == FINGERPRINT
    assert results.meta()["sweep"] == {"outliers": 3}
    assert results.meta()["schema_version"] == 1


def test_the_file_can_be_opened_by_duckdb_1_4(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS r (READ_ONLY)")
        ((tags,),) = connection.execute(
            "SELECT tags FROM duckdb_databases() WHERE database_name = 'r'"
        ).fetchall()
    assert tags["storage_version"].startswith("v1.4.0")


def test_readers_cannot_write_nor_reach_other_files(results: Results, path: Path) -> None:
    for sql in (
        "CREATE TABLE results.more (x INTEGER)",
        "DELETE FROM results.features",
        f"SELECT * FROM read_text('{path.parent / 'manifest.json'}')",
        "SET enable_external_access = true",
        "ATTACH 'other.duckdb'",
    ):
        with pytest.raises(duckdb.Error):
            results._rows(sql)


def test_threads_may_share_a_reader(results: Results) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: results.feature(n % D_SAE), range(48)))
    assert [row["feature"] for row in found if row is not None] == [n % D_SAE for n in range(48)]


def test_a_rebuild_while_a_reader_has_the_old_file_open_works(tmp_path: Path) -> None:
    path = build_small(tmp_path)
    with open_results(path) as old:
        build_small(tmp_path, labels=[Label(0, "tokens", "new")])
        with open_results(path) as new:
            assert [label.label for label in new.labels()] == ["new"]
        assert len(old.labels()) == 3
        assert old.feature(0) is not None


def test_nothing_but_the_database_and_its_manifest_is_left(path: Path) -> None:
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["manifest.json", "results.duckdb"]
    manifest = json.loads((path.parent / "manifest.json").read_text())
    assert set(manifest["files"]) == {"results.duckdb"}
    assert manifest["fingerprint"] == FINGERPRINT.to_dict()


def test_a_file_that_is_cut_while_it_is_read_is_said_to_be(path: Path) -> None:
    """A file this small is in memory at once, so the failing read is DuckDB's own exception, raised here."""

    class Cut:
        def cursor(self) -> Any:
            raise duckdb.IOException("Could not read enough bytes")

    results = Results(path, Cut())  # type: ignore[arg-type]
    for question in (lambda: results.feature(0), lambda: results.stats("all"), results.labels, results.meta):
        with pytest.raises(
            ArtefactError,
            match=r"cut or changed in place\. Delete it, then make it anew with `snakemake --cores 4 labels`",
        ):
            question()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4096])


def alter_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5000] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "no results database"),
        (truncate, "changed or damaged. Delete it, then make it anew"),
        (alter_a_byte, "changed or damaged. Delete it, then make it anew"),
        (lambda path: path.write_text("<html>"), "changed or damaged. Delete it, then make it anew"),
        (
            lambda path: path.with_name("results.duckdb.wal").touch(),
            r"results\.duckdb\.wal is left\. Delete both",
        ),
        (lambda path: path.with_name("manifest.json").unlink(), r"manifest\.json is missing"),
        (lambda path: path.with_name("manifest.json").write_text("{}"), "is not a manifest.*Delete it"),
    ],
)
def test_a_damaged_database_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    path = build_small(tmp_path)
    damage(path)
    with pytest.raises(ArtefactError, match=message):
        open_results(path)


def test_a_database_made_anew_leaves_no_log_of_the_one_before(tmp_path: Path) -> None:
    left = build_small(tmp_path).with_name("results.duckdb.wal")
    left.write_bytes(b"changes to the file before")
    open_results(build_small(tmp_path)).close()
    assert not left.exists()


def test_a_file_that_is_no_database_is_refused_without_a_manifest_too(tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    path.write_text("<html>" * 5000)
    with pytest.raises(ArtefactError, match="cannot be opened as a results database"):
        open_results(path, check=False)


def test_a_manifest_of_another_run_is_refused_by_name(tmp_path: Path) -> None:
    path = build_small(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["fingerprint"]["layer"] = 7
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtefactError, match="layer: made with 1, in use is 7"):
        open_results(path)


def test_labels_of_another_sae_are_refused_and_the_old_database_stays(tmp_path: Path) -> None:
    path = build_small(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ArtefactError, match=f"labels are about features 0 to {D_SAE}; this SAE has {D_SAE}"):
        build_small(tmp_path, labels=[Label(0, "tokens", "x"), Label(D_SAE, "tokens", "x")])
    assert path.read_bytes() == before
    assert open_results(path).labels()


@pytest.mark.parametrize("step", ["insert_rows", "_check"])
def test_a_write_that_fails_leaves_the_old_database_whole(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build_small(tmp_path)
    before = path.read_bytes()

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"neuroscope.store.writing.{step}", full_disk)
    with pytest.raises(OSError, match="No space left"):
        build_small(tmp_path, labels=[])
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["manifest.json", "results.duckdb"]


def test_a_database_without_labels_or_scores_is_complete(tmp_path: Path) -> None:
    path = build_small(tmp_path, labels=(), scores=None, logits=None, neighbours=None)
    with open_results(path) as results:
        assert results.labels() == []
        feature = results.feature(0)
    assert feature is not None
    assert feature["label"] == "feature_0"
    assert feature["balanced_accuracy"] is None


def test_a_path_with_quotes_and_spaces_works(tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    path = build_small(folder)
    with open_results(path) as results:
        assert results.strata() == ["all", "chat"]


def test_the_public_names_of_the_store() -> None:
    assert set(store.__all__) == {"FeatureLabel", "Results", "build", "open_results"}
