"""Tells when a feature is stronger than it should be in any answer, whoever asked for it.

    pip install requests
    python alert.py 123 5.0                    # a line of JSON for every answer in which feature 123 passes 5.0
    python alert.py 123 5.0 --once             # ends with status 1 at the first

The server sends only this feature, and only where it is strong enough; a break is bridged by the id of the last event.
"""

import argparse
import json
import os
import sys
import time

import requests

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("feature", type=int)
parser.add_argument("above", type=float, help="activation")
parser.add_argument("--features", default="http://127.0.0.1:8081/v1/features", metavar="URL")
parser.add_argument("--once", action="store_true")
asked = parser.parse_args()

query = {"features": asked.feature, "min_activation": asked.above, "filter": "none"}
headers = {"Authorization": f"Bearer {os.environ.get('NEUROSCOPE_API_KEY', 'none')}"}
told = set()  # completions: one alert each


def follow() -> None:
    """Read events until the stream ends; `headers` then say where to go on."""
    with requests.get(
        f"{asked.features}/stream", params=query, headers=headers, stream=True, timeout=60
    ) as stream:
        if 400 <= stream.status_code < 500:
            raise SystemExit(stream.json()["error"]["message"])
        stream.raise_for_status()
        print(f"watching feature {asked.feature} above {asked.above}", file=sys.stderr, flush=True)
        name = identifier = ""
        for line in stream.iter_lines():
            field, _, value = line.decode().partition(": ")
            if field == "event":
                name = value
            elif field == "id":
                identifier = value
            elif field == "data":
                react(name, json.loads(value))
                headers["Last-Event-ID"] = identifier or headers.get("Last-Event-ID", "")


def react(name: str, event: dict) -> None:
    if name == "gap":
        print(f"{event['missed']} events were lost", file=sys.stderr, flush=True)
    if name != "feature_activation" or not event["top_features"] or event["completion_id"] in told:
        return
    (found,) = event["top_features"]
    if found["activation"] <= asked.above:  # the server lets exactly this much pass
        return
    told.add(event["completion_id"])
    alert = {key: event[key] for key in ("completion_id", "token_index", "token")}
    print(json.dumps({**alert, **found}), flush=True)
    if asked.once:
        raise SystemExit(1)


while True:
    try:
        follow()
    except requests.RequestException as error:
        print(f"{error}; trying again", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        raise SystemExit(0) from None
    time.sleep(2)
