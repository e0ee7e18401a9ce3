"""An answer, each word with the features that were active on it: the chat stream and the feature stream joined.

    pip install openai requests
    python answer_with_features.py "Where is Paris?"

The server publishes a token's features before it sends the token's text, and a chunk of text says which tokens it
is made of. So one thread listens, and the answer's loop finds what it needs already there, or waits a moment.
"""

import argparse
import json
import os
import threading

import openai
import requests

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("question")
parser.add_argument("--chat", default="http://127.0.0.1:8080/v1", metavar="URL")
parser.add_argument("--features", default="http://127.0.0.1:8081/v1/features", metavar="URL")
parser.add_argument("--top-k", type=int, default=3)
parser.add_argument("--max-tokens", type=int, default=60)
asked = parser.parse_args()
key = os.environ.get("NEUROSCOPE_API_KEY", "none")

events: dict[tuple[str, int], dict] = {}  # (completion, token) -> what was active
news = threading.Condition()
is_listening = threading.Event()
refusals: list[Exception] = []  # why nothing is heard


def listen() -> None:
    """Keep every feature event. A server-sent event is some `field: value` lines and an empty one."""
    headers = {"Authorization": f"Bearer {key}"}
    query = {"top_k": asked.top_k}
    try:
        stream = requests.get(
            f"{asked.features}/stream", params=query, headers=headers, stream=True, timeout=60
        )
        stream.raise_for_status()
    except requests.RequestException as error:
        refusals.append(error)
        is_listening.set()
        return
    with stream:
        name = ""
        for line in stream.iter_lines():
            is_listening.set()  # the server says hello at once
            field, _, value = line.partition(b": ")
            if field == b"event":
                name = value.decode()
            elif field == b"data" and name == "feature_activation":
                event = json.loads(value)
                with news:
                    events[event["completion_id"], event["token_index"]] = event
                    news.notify_all()


threading.Thread(target=listen, daemon=True).start()
if not is_listening.wait(30) or refusals:
    reason = str(refusals[0]) if refusals else "nothing came for 30 s"
    raise SystemExit(f"No features from {asked.features}/stream ({reason}): is the server running?")


def features_of(token: tuple[str, int]) -> dict:
    """The event of one token: there already, or about to be."""
    with news:
        if not news.wait_for(lambda: token in events, timeout=30):
            raise SystemExit(
                f"The features of token {token[1]} did not come; a reader that is too slow loses some."
            )
        return events.pop(token)


client = openai.OpenAI(base_url=asked.chat, api_key=key)
answer = client.chat.completions.create(
    model=client.models.list().data[0].id,
    messages=[{"role": "user", "content": asked.question}],
    max_tokens=asked.max_tokens,
    stream=True,
)
for chunk in answer:
    for index in chunk.model_extra.get("neuroscope", {}).get("token_indices", []):
        event = features_of((chunk.id, index))
        shown = ", ".join(f"{f['label']} {f['activation']:.1f}" for f in event["top_features"])
        print(f"{event['token']!r:16} {shown}")
