"""What the server says about itself once it is ready: where it is, what it runs, and how to try it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from neuroscope.server.loaded import Loaded

if TYPE_CHECKING:
    from neuroscope.ranking import Ranking


def banner(
    loaded: Loaded,
    ranking: Ranking,
    chat: tuple[str, int],
    features: tuple[str, int],
    *,
    key_variable: str | None = None,
) -> str:
    """The text that is printed when everything is loaded. The commands in it work as they stand.

    `key_variable` names the environment variable with the key, where one is asked for; the key itself is not shown.
    """
    chat_url, features_url = _url(*chat), _url(*features)
    rows = _rows(loaded, ranking, chat_url, features_url)
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    return "\n".join(
        ["", "Neuroscope is ready.", "", *lines, "", *_examples(loaded, chat_url, features_url, key_variable)]
    )


def banner_fields(
    loaded: Loaded, ranking: Ranking, chat: tuple[str, int], features: tuple[str, int]
) -> dict[str, Any]:
    """The same for a machine that reads the log."""
    fields: dict[str, Any] = dict(_rows(loaded, ranking, _url(*chat), _url(*features)))
    return fields | {"missing": list(loaded.degraded)}


def _rows(loaded: Loaded, ranking: Ranking, chat_url: str, features_url: str) -> list[tuple[str, str]]:
    labels = ", ".join(f"{count:,} from {source}" for source, count in loaded.label_sources.items())
    return [
        ("page", f"{features_url}/"),
        ("chat", f"{chat_url}/v1"),
        ("features", f"{features_url}/v1/features/stream"),
        ("model", f"{loaded.model} on {loaded.device}, {loaded.dtype}"),
        ("SAE", f"{loaded.sae_id}, layer {loaded.layer}, {loaded.width:,} features"),
        ("filter", _filter(loaded, ranking)),
        ("labels", labels or "none: features are shown by number"),
        *(("missing", sentence) for sentence in loaded.degraded),
    ]


def _filter(loaded: Loaded, ranking: Ranking) -> str:
    if loaded.stats is None:
        return f"off (wanted: {ranking.filter}), there are no statistics"
    by = "" if loaded.stats.source == "measured" else f", by the {loaded.stats.source}, not measured here"
    return f"{ranking.filter}, threshold {ranking.threshold:g}, top {ranking.top_k}{by}"


def _examples(loaded: Loaded, chat_url: str, features_url: str, key_variable: str | None) -> list[str]:
    key = f' -H "Authorization: Bearer ${key_variable}"' if key_variable else ""
    body = json.dumps({"model": loaded.model, "messages": [{"role": "user", "content": "Where is Paris?"}]})
    python_key = f'os.environ["{key_variable}"]' if key_variable else '"none"'
    return [
        "Open the page in a browser. Or watch the features in one terminal and ask in another:",
        "",
        f"  curl -N{key} {features_url}/v1/features/stream",
        f"  curl{key} -H 'Content-Type: application/json' {chat_url}/v1/chat/completions \\",
        f"    -d '{body}'",
        "",
        "From Python:",
        "",
        *(["  import os"] if key_variable else []),
        "  from openai import OpenAI",
        f'  client = OpenAI(base_url="{chat_url}/v1", api_key={python_key})',
        '  question = {"role": "user", "content": "Where is Paris?"}',
        f'  answer = client.chat.completions.create(model="{loaded.model}", messages=[question])',
        "  print(answer.choices[0].message.content)",
        "",
        "Ctrl-C ends the server.",
        "",
    ]


def _url(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
