"""How one side of a comparison is a process: it loads, says `ready`, and runs the same work whenever it is asked to.

Plain Python without imports of this project, since it also runs in the environments of other tools.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Job = Callable[[], dict[str, Any]]
MARK = "answer "
"""Begins what is meant for the comparison; libraries print on stdout too."""


def serve(load: Callable[[dict[str, Any]], Job]) -> None:
    """The first line of stdin is what `load` is given, as JSON; each further one asks for a run."""
    job = load(json.loads(sys.stdin.readline()))
    print(f'{MARK}"ready"', flush=True)
    for _ in sys.stdin:
        print(f"{MARK}{json.dumps(job())}", flush=True)
