"""`python -m neuroscope.doctor`: the same report where even the command line cannot be imported."""

from __future__ import annotations

import sys

from neuroscope.doctor.examination import examine
from neuroscope.doctor.lines import report_lines

report = examine()
print("\n".join(report_lines(report)))
sys.exit(1 if report.blocked else 0)
