"""The page at the root of the features port: where things are. No script, no other host."""

from __future__ import annotations

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Neuroscope</title>
<style>body { font: 16px/1.5 sans-serif; max-width: 44em; margin: 3em auto; padding: 0 1em }</style>
<h1>Neuroscope</h1>
<p>This port says which features of the model are active while it writes.</p>
<ul>
<li><a href="/v1/features/stream">/v1/features/stream</a>: one server-sent event for every token</li>
<li>/v1/features/ws: the same over a WebSocket</li>
<li><a href="/v1/features/labels">/v1/features/labels</a>: the name of every feature</li>
<li>/v1/features/4521: one feature with its statistics and examples</li>
<li><a href="/v1/features/search?q=word">/v1/features/search?q=word</a>: features by name</li>
<li><a href="/readyz">/readyz</a>: what is loaded, and what is missing</li>
<li><a href="/openapi.json">/openapi.json</a>: all of this for programs; the chat port has one too</li>
</ul>
<p>Conversations go to the chat port, POST /v1/chat/completions, as with any server of OpenAI's API.</p>
</html>
"""
