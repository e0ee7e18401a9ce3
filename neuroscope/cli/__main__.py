"""`python -m neuroscope.cli` is `neuroscope`."""

from __future__ import annotations

import sys

from neuroscope.cli.app import main

sys.exit(main())
