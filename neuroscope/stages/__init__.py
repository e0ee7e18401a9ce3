"""The pipeline's stages as its rules call them, where no other module has the call; and what each depends on.

A stage takes the settings and paths and writes files; the work is done by the modules below.
"""

from __future__ import annotations

from neuroscope.stages.uses import (
    USES,
    VERSIONS,
    imported,
    kept,
    own_texts,
    params,
    prompts,
    verification,
)

__all__ = ["USES", "VERSIONS", "imported", "kept", "own_texts", "params", "prompts", "verification"]
