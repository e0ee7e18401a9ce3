"""What gunicorn serves: `gunicorn neuroscope.wsgi`. Asking for `application` starts it, importing does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    application: WSGIApplication


def __getattr__(name: str) -> Any:
    if name != "application":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from neuroscope import settings
    from neuroscope.server.loading import loader
    from neuroscope.server.process import start

    return start(settings.load, loader)
