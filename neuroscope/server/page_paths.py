"""Which paths of the features port are pages and their files. They are the same for everybody and hold no data, so
they are given without a key, which a browser cannot send when it opens a page; what a page then asks for needs it.
"""

from __future__ import annotations

import re

STATIC = "/static/"
_PAGE = re.compile(r"/(?:features|feature/[0-9]{1,19}|sessions|session/[A-Za-z0-9_-]{1,80}|diff)?", re.ASCII)


def is_page(path: str) -> bool:
    """A page that a person opens; another site may link to it."""
    return _PAGE.fullmatch(path) is not None


def is_public(path: str) -> bool:
    """A page or one of the files that pages are made of."""
    return is_page(path) or path.startswith(STATIC)
