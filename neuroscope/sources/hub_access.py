"""May this machine fetch from the hub: is there a token, is it valid, has its account accepted a licence.

Questions only, through the hub's own client; nothing is fetched, and no answer holds the token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from neuroscope.sources.hub_errors import client_errors, explain_listing, is_cut_connection, web_page
from neuroscope.sources.uri import Source, parse

Verdict = Literal["granted", "refused", "offline", "unreachable"]
"""`offline` is the user's own wish (HF_HUB_OFFLINE), `unreachable` the network's state."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the hub says, or why it says nothing."""

    verdict: Verdict
    words: str


def has_token() -> bool:
    """Whether the hub's client has a token, of HF_TOKEN or of `hf auth login`."""
    from huggingface_hub import get_token

    return get_token() is not None


def ask_token(seconds: float) -> Answer:
    """Whose the token is: the hub knows it, or refuses it. To be asked only where there is one."""
    from huggingface_hub import HfApi

    def whose() -> str:
        return f"a token of {HfApi().whoami().get('name', 'an account without a name')}"

    refused = (
        "the hub refuses the token: it is mistyped, expired or revoked "
        "(https://huggingface.co/settings/tokens)"
    )
    return _ask(whose, Source("the token", "hf", "token"), seconds, refused)


def ask_access(uri: str, seconds: float) -> Answer:
    """Whether the repository that the hub source `uri` lies in may be read from here."""
    from huggingface_hub import HfApi

    source = parse(uri)
    kind = "dataset" if source.dataset else "model"

    def open_to_us() -> str:
        api = HfApi()
        api.repo_info(source.name, repo_type=kind)  # JSON: a login page would let everybody in
        api.auth_check(source.name, repo_type=kind)
        return f"{source.name} may be fetched"

    return _ask(open_to_us, source, seconds, None)


def licence_page(uri: str) -> str:
    """Where a person accepts the licence of the repository that `uri` lies in."""
    return web_page(parse(uri))


def _ask(question: Callable[[], str], source: Source, seconds: float, refused: str | None) -> Answer:
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    expected: tuple[type[Exception], ...] = (*client_errors(), json.JSONDecodeError)
    try:
        get_session().timeout = seconds  # the client's own is without an end
        return Answer("granted", question())
    except OfflineModeIsEnabled:
        return Answer("offline", "HF_HUB_OFFLINE is set: the hub is not asked")
    except expected as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, json.JSONDecodeError):
            words = f"{constants.ENDPOINT} answers, but not as a model hub (an HTML page or a proxy's answer)"
            return Answer("unreachable", words)
        if (
            is_cut_connection(error)
            or not isinstance(error, HfHubHTTPError)
            or status in (429, 500, 502, 503, 504)
        ):
            said = f"{status}" if status else type(error).__name__
            return Answer("unreachable", f"the hub at {constants.ENDPOINT} cannot be asked ({said})")
        words = refused or str(explain_listing(error, source)).partition("\n")[0].removeprefix(
            f"{source.uri}: "
        )
        return Answer("refused", words)
