"""The client against the real server, and against listeners that are not it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from raw_server import OPENING, RawServer, answer
from serving import Server, free_ports, serving, wait_until

from neuroscope.client import Client, Event
from neuroscope.errors import ConfigError, NoServerError, ServerError

KEY = "schlüssel"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), serve={"queue": 1, "heartbeat_s": 0.2}) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(port=server.port, features_port=server.features_port) as client:
        yield client


def ask(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]


def said(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])


def raw_client(raw: RawServer, **more: Any) -> Client:
    return Client(port=raw.port, features_port=raw.port, **more)


@pytest.fixture(autouse=True)
def closed_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes what a test made."""
    made: list[Client] = []
    make = Client.__init__

    def remember(client: Client, *given: Any, **more: Any) -> None:
        make(client, *given, **more)
        made.append(client)

    monkeypatch.setattr(Client, "__init__", remember)
    yield
    for client in made:
        client.close()


# --- what it asks


def test_an_answer_comes_in_chunks_that_name_their_tokens(client: Client) -> None:
    chunks = list(client.chat(ask("one two three"), max_tokens=9, temperature=None))
    assert said(chunks) == "one two three"
    assert [chunk.get("neuroscope") for chunk in chunks] == [
        None,
        *({"token_indices": [n]} for n in range(4)),
    ]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_fields_go_into_the_request(client: Client) -> None:
    usage = list(client.chat(ask("a b c"), max_tokens=2, stream_options={"include_usage": True}))[-1]["usage"]
    assert (usage["completion_tokens"], usage["prompt_tokens"]) == (2, 3)


def test_words_that_utf8_cannot_carry_do_not_stop_a_question(client: Client) -> None:
    assert said(list(client.chat(ask("caf\udce9 😀")))).startswith("caf")


def test_the_stream_opens_before_anything_happens_and_then_has_every_token(client: Client) -> None:
    events = client.events(top_k=1, features=[4, 5])
    first = next(events)
    assert (first.name, first.data) == ("open", {})
    list(client.chat(ask("one two")))
    tokens = list(islice(events, 3))
    assert [event.data["token"] for event in tokens] == ["one", " two", ""]
    assert [[f["index"] for f in event.data["top_features"]] for event in tokens] == [[4], [5], []]
    assert [event.name for event in islice(events, 1)] == ["generation_complete"]


def test_a_reader_goes_on_after_the_event_it_had(client: Client) -> None:
    events = client.events()
    next(events)
    list(client.chat(ask("one two three")))
    second = list(islice(events, 2))[1]
    again = client.events(second.id)
    assert [event.data.get("token") for event in islice(again, 3)] == [None, " three", ""]


def test_paths_of_the_features_port_are_read_and_written(client: Client) -> None:
    assert client.get("/v1/features/search", q="label of 1", limit=2)["limit"] == 2
    encoded = client.post("/v1/features/encode", {"text": "a b"}, filter="none", top_k=1)
    assert [token["top_features"][0]["index"] for token in encoded["tokens"]] == [3, 3]
    assert json.loads(client.fetch("/healthz")) == {"status": "ok"}


def test_closing_an_answer_ends_it_at_the_server(client: Client, server: Server) -> None:
    chunks = client.chat(ask("[delay=0.05]" + "word " * 200))
    list(islice(chunks, 3))
    chunks.close()
    server.wait_idle()


# --- what goes wrong


def test_the_servers_own_words_are_the_error(client: Client) -> None:
    with pytest.raises(ServerError, match="'temperature' is -1; it must be") as refused:
        list(client.chat(ask("a"), temperature=-1))
    assert refused.value.status == 400
    with pytest.raises(ServerError, match="There is no parameter 'topk'"):
        client.get("/v1/features/search", topk=1)
    with pytest.raises(ServerError, match="There is no feature 99"):
        client.get("/v1/features/99")


def test_a_failure_in_the_middle_is_an_error_after_what_was_said(client: Client) -> None:
    chunks: list[dict[str, Any]] = []
    with pytest.raises(ServerError, match=r"The model failed on this request \(RuntimeError\)"):
        chunks.extend(client.chat(ask("[fail=2]a b c d")))
    assert said(chunks) == "a b"


def test_a_full_queue_is_told_at_once(client: Client) -> None:
    running = [client.chat(ask(f"[prefill=2]{n}")) for n in range(2)]
    assert all(next(chunks) for chunks in running)
    with pytest.raises(ServerError, match=r"its queue is full\. Try again in a moment") as refused:
        next(client.chat(ask("three")))
    assert (refused.value.status, refused.value.may_pass) == (429, True)
    assert refused.value.retry_after_s
    for chunks in running:
        chunks.close()


def test_a_server_that_loads_is_waited_for(tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, ready=False, env={"SCRIPTED_LOAD_SECONDS": "5"}) as slow:
        wait_until(slow.answers, what="the port")
        wait_until(lambda: slow.get("/readyz").json()["stage"] == "reading the script", what="loading")
        with Client(port=slow.port, features_port=slow.features_port, tell=told.append) as client:
            assert said(list(client.chat(ask("at last")))) == "at last"
    assert told == ["The model is still loading (reading the script). Waiting; Ctrl-C gives up."]


def test_patience_has_an_end() -> None:
    body = json.dumps({"error": {"message": "The model is still loading.", "code": "loading"}}).encode()
    loading = answer(body, "application/json", "503 Service Unavailable", "Retry-After: 1")
    with RawServer([loading]) as raw, pytest.raises(ServerError, match="still loading"):
        raw_client(raw, patience_s=0.5).get("/v1/features/labels")


def test_a_key_is_sent_and_asked_for_by_the_name_of_its_variable(tmp_path: Path) -> None:
    with serving(tmp_path, env={"NEUROSCOPE_API_KEY": KEY}) as locked:
        ports = {"port": locked.port, "features_port": locked.features_port}
        assert Client(**ports, key=KEY).get("/v1/features/labels")["width"] == 32
        with pytest.raises(ServerError, match="asks for a key: set NEUROSCOPE_API_KEY to the one"):
            Client(**ports).get("/v1/features/labels")
        with pytest.raises(ServerError, match="does not take the key in OUR_KEY") as refused:
            list(Client(**ports, key="another", key_variable="OUR_KEY").chat(ask("a")))
        assert "another" not in str(refused.value)
        assert not refused.value.may_pass


def test_a_key_that_cannot_be_sent_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="NEUROSCOPE_API_KEY holds characters") as refused:
        Client(key="sec\nret")
    assert "sec" not in str(refused.value)


def test_nobody_listening_names_the_place_and_the_command() -> None:
    (port,) = free_ports(1)
    with pytest.raises(
        NoServerError,
        match=rf"No server at 127\.0\.0\.1:{port} \(.*refused\)\. Start one with `neuroscope serve`",
    ):
        list(Client(port=port).chat(ask("a")))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost", "[::1]", "127.0.0.1"])
def test_hosts_of_all_kinds_are_asked(host: str) -> None:
    (port,) = free_ports(1)
    with pytest.raises(NoServerError, match="No server at"):
        Client(host, features_port=port).get("/healthz")


@pytest.mark.parametrize(
    "host", ["", "http://127.0.0.1", "a b", "me@host", "host:80:80", "host/path", "\x1b[2J"]
)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"is no host\. Give a name or an address with --host") as refused:
        Client(host)
    assert "\x1b" not in str(refused.value)


def test_a_proxy_of_the_environment_is_not_asked(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Client(features_port=server.features_port) as behind:
        assert behind.get("/healthz") == {"status": "ok"}


NOT_OURS = {
    "a page": (
        answer(b"<html>", "text/html"),
        "is not a Neuroscope server: GET /v1/x got 200 with text/html",
    ),
    "a page that says no": (answer(b"<h1>no", "text/html", "404 Not Found"), "got 404 with text/html"),
    "other JSON that says no": (answer(b'{"error": "no"}', status="400 Bad"), "is not a Neuroscope server"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "it does not speak HTTP"),
    "silence": (b"", "closed the connection without an answer: it is ending, or no Neuroscope server"),
    "a type that steers": (answer(b"", "text/\x1b[2J"), "is not a Neuroscope server"),
    "JSON cut short": (answer(b'{"a": '), "sent JSON that cannot be read"),
    "deep JSON": (answer(b"[" * 100_000), "sent JSON that cannot be read"),
    "less than it said": (answer(b"12345")[:-3], "broke off in the middle of its answer"),
    "a steering sentence": (
        answer(b'{"error": {"message": "no\\u001b[2J\\nway", "code": 7}}', status="400 Bad"),
        r"^no \[2J way$",
    ),
    "a moved server": (answer(b"", "text/html", "302 Found", "Location: http://127.0.0.1:9/"), "got 302"),
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_whatever_else_listens_there_is_told(name: str) -> None:
    says, words = NOT_OURS[name]
    with RawServer([says]) as raw, pytest.raises(ServerError, match=words) as refused:
        raw_client(raw).get("/v1/x")
    assert str(refused.value).isprintable()


STREAMS = {
    "an answer that breaks off": (
        b'data: {"choices": []}\n\n',
        "broke off in the middle of its answer|Connection reset by peer",  # as the socket's end is seen
    ),
    "no JSON": (b"data: {\n\n", "sent an event that is no JSON object: '{'"),
    "a list": (b"data: [1]\n\n", "no JSON object"),
    "an error without words": (b'data: {"error": "no"}\n\n', "failed without saying why"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_goes_wrong_is_told(name: str) -> None:
    body, words = STREAMS[name]
    with RawServer([OPENING + body]) as raw, pytest.raises(ServerError, match=words):
        list(raw_client(raw).chat(ask("a")))


def test_a_server_that_falls_silent_is_given_up() -> None:
    silent = RawServer([OPENING + b": hello\n\n", 5.0])
    with silent as raw, pytest.raises(ServerError, match=r"gave no sign of life for 0\.2 s"):
        list(raw_client(raw, silence_s=0.2).chat(ask("a")))


# --- following


def token(number: int, id_: str) -> bytes:
    return f'event: feature_activation\nid: {id_}\ndata: {{"token_index":{number}}}\n\n'.encode()


def test_a_follower_comes_back_to_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscope.client.asking.RETRY_S", 0.01)
    first = [OPENING + b"id: e-4\n\n" + token(0, "e-5")]
    with RawServer(first, [b""], [OPENING + b"id: e-5\n\n" + token(1, "e-6"), 5.0]) as raw:
        events = list(islice(raw_client(raw).follow(top_k=3), 6))
        asked = [request.split(b" ")[1] for request in raw.requests]
    assert [(event.name, event.id) for event in events] == [
        ("open", "e-4"),
        ("feature_activation", "e-5"),
        ("lost", "e-5"),
        ("lost", "e-5"),
        ("open", "e-5"),
        ("feature_activation", "e-6"),
    ]
    assert events[2].data["reason"] == "The server closed the stream."
    assert asked == [
        b"/v1/features/stream?top_k=3",
        b"/v1/features/stream?since=e-5&top_k=3",
        b"/v1/features/stream?since=e-5&top_k=3",
    ]


def test_a_follower_that_never_got_in_says_so() -> None:
    (port,) = free_ports(1)
    with pytest.raises(NoServerError):
        next(Client(features_port=port).follow())


def test_a_follower_does_not_come_back_for_what_waiting_does_not_mend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("neuroscope.client.asking.RETRY_S", 0.01)
    refusal = answer(b'{"error": {"message": "No key.", "code": "x"}}', status="401 Unauthorized")
    with RawServer([OPENING + b"id: e-1\n\n"], [refusal]) as raw:
        events = raw_client(raw).follow()
        assert [event.name for event in islice(events, 2)] == ["open", "lost"]
        with pytest.raises(ServerError, match="No key"):
            next(events)


def test_the_end_of_the_server_is_told_and_its_return_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuroscope.client.asking.RETRY_S", 0.05)
    serve: dict[str, Any] = {}
    with serving(tmp_path, serve=serve) as one:
        ports = {"port": one.port, "features_port": one.features_port}
        events = Client(**ports).follow()
        assert next(events).name == "open"
        one.stop(signal.SIGTERM)
        assert [next(events).name, next(events).name] == ["shutdown", "lost"]
    with serving(tmp_path, serve=ports):
        until_back: list[Event] = []
        for event in events:
            until_back.append(event)
            if event.name == "gap":
                break
    assert until_back[-1].data["reason"] == "The server was restarted since the last event."
    assert until_back[-2].name == "open"
