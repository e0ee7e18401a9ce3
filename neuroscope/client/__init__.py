"""A client of the running server, of both its ports: what the command line asks it with.

Knows HTTP, server-sent events and how the server refuses; nothing of models, results or terminals.
"""

from __future__ import annotations

from neuroscope.client.asking import Client, Event
from neuroscope.client.joining import Answer, Listener

__all__ = ["Answer", "Client", "Event", "Listener"]
