"""What is here, what is missing, and the one command to go on with: the checks behind `neuroscope doctor`.

It has to work where everything else is broken. So nothing but the standard library is imported before it is needed,
the checks run side by side, and one that fails or hangs is a line of the report and no more.
"""

from __future__ import annotations

from neuroscope.doctor.check import Check, Status
from neuroscope.doctor.examination import Report, examine

__all__ = ["Check", "Report", "Status", "examine"]
