"""Numbered files of a public bucket: fetched once, whole or not at all, whatever the network does."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.neuronpedia import FakeBucket, explanation

from neuroscope.errors import SourceError
from neuroscope.sources import batches, fetch_batches
from neuroscope.sources.batches import AT_ONCE, ATTEMPTS

FIRST = "explanations/batch-0.jsonl.gz"
THIRD = "explanations/batch-2.jsonl.gz"
BATCHES = 20


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(batches, "BACKOFF_S", 0.001)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def bucket() -> Iterator[FakeBucket]:
    with FakeBucket() as bucket:
        bucket.publish("explanations", [explanation(i, f"text {i}") for i in range(BATCHES * 3)], size=3)
        yield bucket


def address(bucket: FakeBucket) -> str:
    return f"{bucket.url}/{bucket.root}/explanations"


def fetch(bucket: FakeBucket, *, refresh: bool = False) -> batches.Batches:
    return fetch_batches(address(bucket), title="test", refresh=refresh, progress=False)


def contents(found: batches.Batches) -> list[bytes]:
    return [path.read_bytes() for path in found.files]


def published(bucket: FakeBucket) -> list[bytes]:
    return [bucket.files[f"explanations/batch-{number}.jsonl.gz"] for number in range(BATCHES)]


def test_every_batch_is_fetched_once_and_in_order(bucket: FakeBucket) -> None:
    found = fetch(bucket)
    assert contents(found) == published(bucket)
    assert (found.fetched, found.gaps) == (BATCHES, ())
    assert set(bucket.asked.values()) == {1}
    assert bucket.requests <= BATCHES + 2 * AT_ONCE


def test_a_second_call_asks_nobody(bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch(bucket)
    asked = bucket.requests
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    again = fetch(bucket)
    assert (again.files, again.fetched, bucket.requests) == (first.files, 0, asked)


def test_a_folder_that_is_not_there_costs_a_handful_of_questions(bucket: FakeBucket) -> None:
    found = fetch_batches(f"{bucket.url}/v1/no/such/explanations", title="test", progress=False)
    assert (found.files, bucket.requests) == ((), AT_ONCE)


def test_a_bucket_that_may_not_be_listed_ends_with_403(bucket: FakeBucket) -> None:
    bucket.missing_status = 403
    assert contents(fetch(bucket)) == published(bucket)


@pytest.mark.parametrize("fault", ["503", "500", "429", "reset", "cut", "truncated"])
def test_what_may_pass_is_tried_again(bucket: FakeBucket, fault: str) -> None:
    bucket.faults = {FIRST: [fault], THIRD: [fault, fault]}
    assert contents(fetch(bucket)) == published(bucket)
    assert (bucket.asked[FIRST], bucket.asked[THIRD]) == (2, 3)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("503", "status 503, 4 times"),
        ("reset", "the connection failed"),
        ("cut", "the connection failed"),
        ("truncated", "damaged or ends early"),
    ],
)
def test_what_does_not_pass_names_the_file_and_keeps_the_rest(
    bucket: FakeBucket, fault: str, words: str
) -> None:
    bucket.faults = {THIRD: [fault] * ATTEMPTS}
    with pytest.raises(SourceError, match=words) as raised:
        fetch(bucket)
    assert THIRD in str(raised.value)
    assert "Run the same command again" in str(raised.value)
    before = bucket.asked.copy()
    found = fetch(bucket)
    assert contents(found) == published(bucket)
    assert bucket.asked[FIRST] == before[FIRST], "what came whole is not fetched again"
    assert found.fetched < BATCHES


@pytest.mark.parametrize(
    ("fault", "words"), [("html", "HTML page"), ("401", "status 401"), ("403", "status 403")]
)
def test_what_is_no_bucket_is_said_at_once(bucket: FakeBucket, fault: str, words: str) -> None:
    bucket.faults = {THIRD: [fault]}
    with pytest.raises(SourceError, match=words) as raised:
        fetch(bucket)
    assert "neuronpedia.base_url" in str(raised.value)
    assert bucket.asked[THIRD] == 1


def test_a_file_that_is_not_gzip_is_refused(bucket: FakeBucket) -> None:
    bucket.files[THIRD] = gzip.decompress(bucket.files[THIRD])
    with pytest.raises(SourceError, match="not a gzip file, it begins with"):
        fetch(bucket)


@pytest.mark.parametrize("number", [0, 2, AT_ONCE])
def test_a_gap_is_told_and_what_follows_is_kept(bucket: FakeBucket, number: int) -> None:
    """Exporters write no file for a batch without a row, be it the first."""
    bucket.files.pop(f"explanations/batch-{number}.jsonl.gz")
    found = fetch(bucket)
    assert found.gaps == (number,)
    assert len(found.files) == BATCHES - 1
    assert fetch(bucket) == batches.Batches(found.files, (number,), 0)


def test_without_the_network_an_unfinished_download_says_what_to_do(
    bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.faults = {THIRD: ["403"]}
    with pytest.raises(SourceError):
        fetch(bucket)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE=0"):
        fetch(bucket)


def test_nobody_at_the_address_is_said(bucket: FakeBucket) -> None:
    url = address(bucket)
    bucket.__exit__()
    with pytest.raises(SourceError, match="the connection failed"):
        fetch_batches(url, title="test", progress=False)


def test_a_refresh_replaces_all_or_nothing(bucket: FakeBucket) -> None:
    old = contents(fetch(bucket))
    bucket.publish("explanations", [explanation(i, f"new {i}") for i in range(BATCHES * 3)], size=3)
    bucket.faults = {THIRD: ["401"]}
    with pytest.raises(SourceError):
        fetch(bucket, refresh=True)
    assert contents(fetch(bucket)) == old
    assert contents(fetch(bucket, refresh=True)) == published(bucket)
    assert contents(fetch(bucket)) == published(bucket)


def test_a_full_disk_names_the_setting_that_moves_the_cache(
    bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(batches, "replace_atomically", full)
    with pytest.raises(SourceError, match="NEUROSCOPE_CACHE"):
        fetch(bucket)


def test_no_token_leaves_the_machine(bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecret")
    fetch(bucket)
    assert "secretsecret" not in str(bucket.headers)


def test_a_killed_download_goes_on_where_it_was(bucket: FakeBucket, tmp_path: Path) -> None:
    last = f"explanations/batch-{BATCHES - 1}.jsonl.gz"
    bucket.faults = {last: ["hang"]}
    script = f"from neuroscope.sources import fetch_batches; fetch_batches({address(bucket)!r}, title='t')"
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ}, stderr=subprocess.DEVNULL)
    assert bucket.hanging.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole = {path.name for path in (tmp_path / "cache").rglob("batch-*.jsonl.gz")}
    assert len(whole) >= 2 * AT_ONCE
    before = bucket.asked.copy()
    assert contents(fetch(bucket)) == published(bucket)
    asked_again = {name for name in bucket.files if bucket.asked[name] > before[name]}
    assert asked_again == {name for name in bucket.files if name.rpartition("/")[2] not in whole}
    assert not list((tmp_path / "cache").rglob("*.tmp"))
