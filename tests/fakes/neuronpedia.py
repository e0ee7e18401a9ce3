"""Neuronpedia's bucket on loopback: numbered gzip files of JSON lines, in the lexicographic order of the real one.

`FakeBucket` is a context manager. Faults are scripted per file, one for each time it is asked for.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from fakes.loopback import Loopback

MODEL, SAE = "tiny", "1-tiny-res-64"
Row = dict[str, Any]


def in_batches(rows: Iterable[Row], size: int) -> list[list[Row]]:
    """Rows sorted as texts by `index`, cut into batches: "0", "1", "10", "100", ..."""
    ordered = sorted(rows, key=lambda row: str(row["index"]))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def packed(rows: Sequence[Row | str]) -> bytes:
    """A batch: JSON lines, gzip; texts are lines as they are."""
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), compresslevel=1)


def explanation(index: int, text: str, method: str = "np_max-act", model: str = "gpt-4o", **more: Any) -> Row:
    described = {"index": str(index), "description": text, "typeName": method, "explanationModelName": model}
    return {"modelId": MODEL, "layer": SAE, **described, **more}


def feature(index: int, rate: float, largest: float = 9.0, **more: Any) -> Row:
    tokens = {
        "pos_str": [" Paris", " Rome"],
        "pos_values": [1.5, 1.25],
        "neg_str": [" the"],
        "neg_values": [-0.5],
    }
    return {"index": str(index), "frac_nonzero": rate, "maxActApprox": largest, **tokens, **more}


def activation(index: int, tokens: list[str], values: list[float], **more: Any) -> Row:
    largest = max(values)
    peak = {"maxValue": largest, "maxValueTokenIndex": values.index(largest)}
    return {"index": str(index), "tokens": tokens, "values": values, **peak, **more}


def activations_of(
    model: Any, tokenizer: Any, sae: Any, texts: Iterable[str], layer: int, *, bos: bool = True
) -> list[Row]:
    """Rows of every feature that fires on `texts`, by transformers' own hidden states and the formula written out.

    `sae` reads the output of decoder layer `layer`, which must not be the last; with `bos` each text begins with one.
    """
    import numpy as np
    import torch

    rows = []
    for text in texts:
        ids = [tokenizer.bos_token_id, *tokenizer.encode(text, add_special_tokens=False)]
        with torch.inference_mode():
            states = model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        pre = states[layer + 1][0].numpy() @ sae.W_enc.numpy() + sae.b_enc.numpy()
        acts = np.where(pre > sae.threshold.numpy(), pre, 0.0)
        acts[0] = 0  # examples do not peak on BOS
        strings = [tokenizer.bos_token, *(tokenizer.decode([token]) for token in ids[1:])]
        start = 0 if bos else 1
        for index in np.flatnonzero(acts.max(0) > 0).tolist():
            rows.append(activation(index, strings[start:], acts[start:, index].tolist()))
    return rows


class FakeBucket(Loopback):
    """Serves `v1/{model}/{sae}/{kind}/batch-{N}.jsonl.gz`."""

    def __init__(self, model: str = MODEL, sae: str = SAE) -> None:
        self.root = f"v1/{model}/{sae}"
        self.files: dict[str, bytes] = {}
        """`explanations/batch-0.jsonl.gz` -> its bytes."""
        self.faults: dict[str, list[str]] = {}
        """File -> what goes wrong each time: a status, `reset`, `cut`, `truncated`, `html`, `hang`, or `ok`."""
        self.missing_status = 404
        """403 as a bucket answers that may not be listed."""
        self.asked: Counter[str] = Counter()
        """Requests by file."""
        self.headers: list[dict[str, str]] = []
        self.hanging = threading.Event()
        """Set once a request hangs."""
        self._leave = threading.Event()
        super().__init__(_handler(self))

    def publish(self, kind: str, rows: Iterable[Row], size: int = 256) -> None:
        """Replaces a kind's batches."""
        self.files = {name: body for name, body in self.files.items() if not name.startswith(f"{kind}/")}
        for number, batch in enumerate(in_batches(rows, size)):
            self.files[f"{kind}/batch-{number}.jsonl.gz"] = packed(batch)

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        super().__exit__()

    @property
    def requests(self) -> int:
        return sum(self.asked.values())

    def wait_to_leave(self) -> None:
        self._leave.wait(60)


def _handler(bucket: FakeBucket) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(self.path).strip("/")
            name = path.removeprefix(f"{bucket.root}/")
            bucket.asked[name] += 1
            bucket.headers.append(dict(self.headers.items()))
            body = bucket.files.get(name) if path.startswith(f"{bucket.root}/") else None
            faults = bucket.faults.get(name, [])
            fault = faults.pop(0) if faults else "ok"
            if fault == "reset":
                self._reset()
            elif fault == "hang":
                bucket.hanging.set()
                bucket.wait_to_leave()
            elif fault.isdigit():
                self._send(int(fault), b"<html>an error</html>", "text/html")
            elif fault == "html":
                self._send(200, b"<!doctype html><html>Log in to the network</html>", "text/html")
            elif body is None:
                code = "AccessDenied" if bucket.missing_status == 403 else "NoSuchKey"
                self._send(
                    bucket.missing_status, f"<Error><Code>{code}</Code></Error>".encode(), "application/xml"
                )
            elif fault == "truncated":
                self._send(200, body[: len(body) // 2])
            else:
                self._send(200, body, cut=len(body) // 2 if fault == "cut" else None)

        def log_message(self, *_: object) -> None:
            """Silence: tests read `bucket.asked`."""

        def _reset(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

        def _send(
            self, status: int, body: bytes, kind: str = "application/gzip", cut: int | None = None
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:cut])
            self.close_connection = self.close_connection or cut is not None

    return Handler
