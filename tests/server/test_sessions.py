"""Sessions over HTTP: an answer is saved whole or refused for a reason, and shown without a model."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from documented import operation, validate
from made_recordings import document
from scripted import ALWAYS_ON, WIDTH
from scripted_results import write_results
from serving import EventStream, Server, http, serving, wait_until

from neuroscope.recording import check_recording
from neuroscope.server.session_html import ELEMENT

SAVE = operation("features", "post", "/v1/sessions")
LIST = operation("features", "get", "/v1/sessions")
SHOW = operation("features", "get", "/v1/sessions/{id}")
DELETE = operation("features", "delete", "/v1/sessions/{id}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sessions")


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    """With whole results, and a ring of 64 events whose end is near."""
    write_results(root / "results/tiny")
    with serving(root, env={"SCRIPTED_RESULTS": "1"}, serve={"ring": 64, "queue": 4}) as running:
        yield running
    planned = running.output.count("RuntimeError: (what it says is withheld")
    assert running.output.count("Traceback") == planned, running.output


def save(server: Server, **body: Any) -> httpx.Response:
    answer = http.post(f"{server.features_url}/v1/sessions", json=body)
    assert answer.status_code in SAVE.responses
    return answer


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    return str(answer.json()["error"]["message"])


def saved(server: Server, content: str, **more: Any) -> dict[str, Any]:
    """The recording of an answer to `content`."""
    completion_id = server.chat(content, **more).json()["id"]
    answer = save(server, completion_id=completion_id)
    assert answer.status_code == 201, answer.text
    return shown(server, answer.json()["id"])


def shown(server: Server, name: str) -> dict[str, Any]:
    answer = server.get(f"/v1/sessions/{name}")
    assert answer.status_code == 200, answer.text
    validate("features", SHOW.responses[200]["content"]["application/json"]["schema"], answer.json())
    found: dict[str, Any] = answer.json()
    return found


def test_an_answer_is_saved_with_every_feature_of_every_token(server: Server) -> None:
    completion_id = server.chat("one two", neuroscope={"prompt_features": True}).json()["id"]
    answer = save(server, completion_id=completion_id)
    assert answer.status_code == 201
    validate("features", SAVE.responses[201]["content"]["application/json"]["schema"], answer.json())
    assert answer.json()["url"] == f"/session/{answer.json()['id']}"
    found = shown(server, answer.json()["id"])
    assert check_recording(found, of="the answer").id == answer.json()["id"]
    assert (found["completion_id"], found["finish_reason"], found["total_tokens"]) == (
        completion_id,
        "stop",
        2,
    )
    assert [token["token"] for token in found["tokens"]] == ["one", " two", ""], "the end of turn too"
    # Feature 3 fires on every token and is filtered for every subscriber: here it is.
    assert [f for f, _, _ in found["tokens"][1]["top_features"]] == [ALWAYS_ON, 5, 21]
    assert [a for _, a, _ in found["tokens"][1]["top_features"]] == [9.0, 5.0, 2.5]
    assert [token["l0"] for token in found["prompt"]] == [3, 3]
    assert [token["content"] for token in found["prompt"]] == [False, True]
    assert [token["position"] for token in found["prompt"] + found["tokens"]] == [0, 1, 2, 3, 4]
    assert (found["width"], found["layer"], found["pairing"]) == (WIDTH, 7, "scripted")
    assert found["ranking"] == {"filter": "frequency", "threshold": 0.5, "top_k": 10}
    assert found["messages"] is None
    assert found["title"] == "two", "what of the prompt is content"


def test_labels_and_statistics_are_those_the_stream_shows(server: Server) -> None:
    found = saved(server, "one two three")
    with EventStream(
        server.features_port, f"/v1/features/stream?filter=none&completion_id={found['completion_id']}"
    ) as stream:
        events = [event.data for event in stream.until("generation_complete")[:-1]]
    for event, token in zip(events, found["tokens"], strict=True):
        for shown_feature, (index, activation, surprise) in zip(
            event["top_features"], token["top_features"], strict=True
        ):
            assert shown_feature["index"] == index
            assert shown_feature["label"] == found["features"][str(index)]["label"]
            assert shown_feature["activation"] == pytest.approx(activation, rel=1e-7)
            if surprise is None:
                assert shown_feature["surprise"] is None
            else:
                assert shown_feature["surprise"] == pytest.approx(surprise, rel=1e-6)
        assert {name: event[name] for name in ("token", "token_id", "position", "l0", "fvu")} == {
            name: token[name] for name in ("token", "token_id", "position", "l0", "fvu")
        }
    page = server.get("/v1/features/5?examples=none").json()
    in_use = page["stats_in_use"]
    assert found["features"]["5"]["firing_rate"] == pytest.approx(in_use["firing_rate"])
    assert found["features"]["5"]["mean_firing"] == pytest.approx(in_use["mean_firing"])


def test_title_and_messages_are_kept_as_they_were_told(server: Server) -> None:
    completion_id = server.chat("a b").json()["id"]
    messages = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Where is "}, {"type": "text", "text": "Paris?"}],
        },
    ]
    name = save(server, completion_id=completion_id, title=" <b>Paris</b> 😀 ", messages=messages).json()
    found = shown(server, name["id"])
    assert found["title"] == "<b>Paris</b> 😀"
    assert found["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is Paris?"},
    ]
    again = save(server, completion_id=completion_id, messages=messages).json()
    assert again["id"] != name["id"], "saved twice, kept twice"
    assert shown(server, again["id"])["title"] == "Where is Paris?"


def test_a_long_question_is_a_short_title(server: Server) -> None:
    completion_id = server.chat("a b").json()["id"]
    messages = [{"role": "user", "content": "word " * 100}]
    title = shown(server, save(server, completion_id=completion_id, messages=messages).json()["id"])["title"]
    assert title == ("word " * 16)[:77] + "..."


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "completion_id"),
        ({"completion_id": None}, "completion_id"),
        ({"completion_id": 5}, "completion_id"),
        ({"completion_id": "../../etc/passwd"}, "completion_id"),
        ({"completion_id": ""}, "completion_id"),
        ({"completion_id": "a" * 65}, "completion_id"),
        ({"completion_id": "a", "title": 5}, "title"),
        ({"completion_id": "a", "title": "x" * 201}, "title"),
        ({"completion_id": "a", "messages": "hi"}, "messages"),
        ({"completion_id": "a", "messages": []}, "messages"),
        ({"completion_id": "a", "messages": [{"role": "root", "content": ""}]}, "messages[0].role"),
        ({"completion_id": "a", "titel": "x"}, "titel"),
    ],
    ids=str,
)
def test_a_wrong_field_is_refused_by_name(server: Server, body: dict[str, Any], param: str) -> None:
    answer = save(server, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_an_unknown_answer_is_not_found(server: Server) -> None:
    assert "among the newest events" in refused(
        save(server, completion_id="chatcmpl-nobody"), 404, "completion_not_found"
    )


def test_an_answer_that_is_being_written_or_waits_is_to_be_saved_later(server: Server) -> None:
    seen: list[str] = []
    with EventStream(server.features_port) as stream:
        asked = threading.Thread(target=server.chat, args=("[delay=0.3] a b c d e f g h",))
        asked.start()
        first = next(stream.events())
        answer = save(server, completion_id=first.data["completion_id"])
        assert "is not finished yet" in refused(answer, 409, "not_finished")
        assert int(answer.headers["retry-after"]) > 0
        seen.append(first.data["completion_id"])
        asked.join()
    assert save(server, completion_id=seen[0]).status_code == 201


def test_an_answer_whose_beginning_is_gone_is_not_saved_by_half(server: Server) -> None:
    completion_id = server.chat("a b c d e").json()["id"]
    server.chat(" ".join(["w"] * 58))
    message = refused(save(server, completion_id=completion_id), 410, "completion_gone")
    assert re.search(r"[1-9] of its events are no longer among those that serve\.ring keeps", message)
    server.chat(" ".join(["w"] * 60))
    refused(save(server, completion_id=completion_id), 410, "completion_gone")


def test_a_failed_answer_is_not_saved(server: Server) -> None:
    with EventStream(server.features_port) as stream:
        server.chat("[fail=2] a b c")
        completion_id = stream.until("generation_error")[-1].data["completion_id"]
    assert "failed and is no whole answer" in refused(
        save(server, completion_id=completion_id), 422, "completion_failed"
    )


def test_a_cancelled_answer_is_saved_as_far_as_it_came(server: Server) -> None:
    with EventStream(server.features_port) as stream:
        body = {"messages": [{"role": "user", "content": "[delay=0.1] a b c d e f g h"}], "stream": True}
        with http.stream("POST", f"{server.chat_url}/v1/chat/completions", json=body) as response:
            next(event for event in stream.events() if event.data["token"] == " b")
            response.close()
        completion_id = stream.until("generation_complete")[-1].data["completion_id"]
    found = shown(server, save(server, completion_id=completion_id).json()["id"])
    assert found["finish_reason"] == "cancelled"
    assert 2 <= len(found["tokens"]) < 8


def test_sessions_are_listed_newest_first_in_pages(server: Server) -> None:
    for n in range(3):
        saved(server, f"a b{n}")
    whole = server.get("/v1/sessions?limit=500").json()
    validate("features", LIST.responses[200]["content"]["application/json"]["schema"], whole)
    assert whole["total"] == len(whole["sessions"]) >= 3
    times = [row["created_at"] for row in whole["sessions"]]
    assert times == sorted(times, reverse=True)
    part = server.get("/v1/sessions?limit=2&offset=1").json()
    assert part["sessions"] == whole["sessions"][1:3]
    for wrong in ("limit=0", "limit=501", "offset=-1", "limit=x", "page=2", "limit=1&limit=2"):
        assert server.get(f"/v1/sessions?{wrong}").status_code == 400


def test_a_deleted_session_is_gone(server: Server, root: Path) -> None:
    name = saved(server, "a b")["id"]
    path = root / f"results/tiny/sessions/{name}.json"
    assert path.is_file()
    answer = http.delete(f"{server.features_url}/v1/sessions/{name}")
    validate("features", DELETE.responses[200]["content"]["application/json"]["schema"], answer.json())
    assert not path.exists()
    for method in ("GET", "DELETE"):
        again = http.request(method, f"{server.features_url}/v1/sessions/{name}")
        assert "There is no session" in refused(again, 404, "session_not_found")
    refused(server.get(f"/v1/sessions/{name}.html"), 404, "session_not_found")


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fconfig%2fconfig.yaml",
        "../../config/config.yaml",
        "%2e%2e/results.duckdb",
        "..",
        "a.json",
        "A",
        "a%00",
        "a%0a",
        "-a",
        "a" * 65,
        ".lock",
        "%C3%A9",
    ],
)
def test_what_is_no_id_reaches_no_file(server: Server, name: str) -> None:
    for method in ("GET", "DELETE"):
        for end in ("", ".html"):
            answer = http.request(method, f"{server.features_url}/v1/sessions/{name}{end}")
            assert answer.status_code in (404, 405), answer.text
            assert answer.headers["content-type"] == "application/json"


def test_a_page_of_another_port_may_delete_only_when_it_is_allowed(server: Server) -> None:
    headers = {
        "Origin": f"http://localhost:{server.features_port}",
        "Access-Control-Request-Method": "DELETE",
    }
    allowed = http.options(f"{server.features_url}/v1/sessions/a", headers=headers)
    assert "DELETE" in allowed.headers["access-control-allow-methods"]
    evil = http.options(
        f"{server.features_url}/v1/sessions/a", headers={**headers, "Origin": "http://evil.example"}
    )
    assert evil.status_code == 403


def test_the_exported_page_is_one_file_to_save(server: Server) -> None:
    found = saved(server, "a </script><script>alert(1)</script> b <!-- c")
    answer = server.get(f"/v1/sessions/{found['id']}.html")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-disposition"] == f'attachment; filename="{found["id"]}.html"'
    data = re.search(
        rf'<script type="application/json" id="{ELEMENT}">(.*?)</script>', answer.text, re.DOTALL
    )
    assert data is not None
    assert json.loads(data[1]) == found
    assert "alert(1)</script>" not in answer.text


def test_damaged_and_foreign_files_are_named_and_do_not_hide_others(server: Server, root: Path) -> None:
    folder = root / "results/tiny/sessions"
    folder.mkdir(exist_ok=True)
    (folder / "cut.json").write_text(json.dumps(document())[:-30])
    (folder / "foreign.json").write_text('{"hello": "world"}')
    try:
        rows = {row["id"]: row for row in server.get("/v1/sessions?limit=500").json()["sessions"]}
        assert "cut short" in rows["cut"]["error"]
        assert "no recording" in rows["foreign"]["error"]
        assert refused(server.get("/v1/sessions/cut"), 422, "session_damaged")
        assert refused(server.get("/v1/sessions/cut.html"), 422, "session_damaged")
        answer = save(server, completion_id=server.chat("a b").json()["id"])
        assert answer.status_code == 201
        assert any("cut is left out of sessions.duckdb" in note for note in answer.json()["notes"])
        assert "cut is left out of sessions.duckdb" in server.output
    finally:
        (folder / "cut.json").unlink()
        (folder / "foreign.json").unlink()


def test_what_cannot_be_written_is_said_and_not_tried_again(tmp_path: Path) -> None:
    write_results(tmp_path / "results/tiny")
    (tmp_path / "results/tiny/sessions").write_text("no folder")
    with serving(tmp_path, env={"SCRIPTED_RESULTS": "1"}) as server:
        answer = save(server, completion_id=server.chat("a b").json()["id"])
        assert "sessions" in refused(answer, 507, "not_saved")
        assert answer.headers["x-should-retry"] == "false"
        assert "sessions cannot be used" in refused(server.get("/v1/sessions"), 422, "session_damaged")


def test_recordings_are_served_while_the_model_loads_and_after_it_failed(tmp_path: Path) -> None:
    folder = tmp_path / "results/tiny/sessions"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(json.dumps(document(id="a")))
    with serving(tmp_path, env={"SCRIPTED_LOAD_SECONDS": "60"}, ready=False) as server:
        wait_until(server.answers, what="the port")
        wait_until(lambda: http.get(f"{server.features_url}/healthz").status_code == 200, what="the server")
        assert shown(server, "a")["title"] == "Where is Paris?"
        assert server.get("/v1/sessions").json()["total"] == 1
        assert server.get("/v1/sessions/a.html").status_code == 200
        both = {"a": {"session": "a"}, "b": {"session": "a"}}
        assert http.post(f"{server.features_url}/v1/diff", json=both).status_code == 200
        refused(save(server, completion_id="chatcmpl-1"), 503, "loading")
        os.kill(server.process.pid, 9)  # it would wait for its loading


def test_saving_does_not_hold_the_stream_up(server: Server) -> None:
    """A long answer is recorded in another thread: /healthz is answered meanwhile."""
    completion_id = server.chat(" ".join(["word"] * 55), max_tokens=60).json()["id"]
    slowest = 0.0
    saving = threading.Thread(target=save, args=(server,), kwargs={"completion_id": completion_id})
    saving.start()
    while saving.is_alive():
        started = time.monotonic()
        server.get("/healthz")
        slowest = max(slowest, time.monotonic() - started)
    saving.join()
    assert slowest < 2
