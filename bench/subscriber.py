"""One subscriber of the features stream in a process of its own: `python -m bench.subscriber PORT`.

Says a line when it is connected, and how many tokens' events came when the stream ends.
"""

from __future__ import annotations

import socket
import sys

REQUEST = b"GET /v1/features/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def main() -> None:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        connection.sendall(REQUEST)
        said, count, rest = False, 0, b""
        while data := connection.recv(65536):
            *events, rest = (rest + data).split(b"\n\n")
            count += sum(b"event: feature_activation\n" in event for event in events)
            if events and not said:
                print("connected", flush=True)
                said = True
    print(count, flush=True)


if __name__ == "__main__":
    main()
