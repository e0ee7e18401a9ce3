"""The command `neuroscope`: flags in, Snakemake targets or the server started, results shown.

stdout is data, stderr is progress and errors. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
What a stage does is the pipeline's business; heavy libraries are imported by the command that needs them.
"""

from __future__ import annotations

from neuroscope.cli.app import main

__all__ = ["main"]
