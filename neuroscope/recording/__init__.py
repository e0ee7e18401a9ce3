"""One generation as a file: every token with all its active features, to be looked at, filtered and compared later.

The document says everything a page needs: labels and statistics stand once, in `features`, and tokens hold numbers
alone. Where recordings are kept is `sessions`' business.
"""

from __future__ import annotations

from neuroscope.recording.document import FORMAT, VERSION, Recording, identity
from neuroscope.recording.reading import (
    IDENTIFIER,
    MAX_BYTES,
    MAX_TITLE,
    check_recording,
    parse_recording,
    read_recording,
    write_recording,
)

__all__ = [
    "FORMAT",
    "IDENTIFIER",
    "MAX_BYTES",
    "MAX_TITLE",
    "VERSION",
    "Recording",
    "check_recording",
    "identity",
    "parse_recording",
    "read_recording",
    "write_recording",
]
