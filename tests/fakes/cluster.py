"""A cluster of this machine: a command takes a job script, answers with a number, and the job runs by itself.

`Cluster.options` are the options that have Snakemake use it. Each job is a process group, which `kill` ends as a
node that goes away does.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

RUN = '"$1" >"$2/output" 2>&1; echo $? >"$2/status.tmp"; mv "$2/status.tmp" "$2/status"'


@dataclass(frozen=True, slots=True)
class Cluster:
    """What it knows of a job is in `folder`, below its number: `name`, `pid`, `output`, and `status` once it has ended.

    The name is that of the rule, with its wildcards: `shard-1`.
    """

    folder: Path

    @property
    def options(self) -> list[str]:
        words = [sys.executable, str(Path(__file__).absolute()), str(self.folder)]
        ours = " ".join(map(shlex.quote, words))
        return [
            "--executor=cluster-generic",
            f"--cluster-generic-submit-cmd={ours} submit",
            f"--cluster-generic-status-cmd={ours} status",
            "--seconds-between-status-checks=1",
            "--max-status-checks-per-second=50",
        ]

    def submit(self, script: str) -> int:
        """Starts `script` and returns its number."""
        number = len(self.jobs())
        job = self.folder / str(number)
        job.mkdir(parents=True)
        (job / "name").write_text(name_of(Path(script)))
        process = subprocess.Popen(
            ["sh", "-c", RUN, "sh", script, str(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        (job / "pid").write_text(str(process.pid))
        return number

    def status(self, number: int) -> str:
        """`running`, `success` or `failed`; a job that is gone without a word has failed."""
        with suppress(FileNotFoundError):
            return "success" if (self.folder / str(number) / "status").read_text() == "0\n" else "failed"
        try:
            os.kill(self.pid(number), 0)
        except ProcessLookupError:
            return "success" if (self.folder / str(number) / "status").exists() else "failed"
        return "running"

    def jobs(self, pattern: str = "*") -> list[int]:
        """Numbers of the jobs submitted so far whose name is like `pattern`."""
        paths = self.folder.glob("*/name")
        return sorted(int(path.parent.name) for path in paths if fnmatch(path.read_text(), pattern))

    def pid(self, number: int) -> int:
        return int((self.folder / str(number) / "pid").read_text())

    def kill(self, number: int) -> None:
        os.killpg(self.pid(number), signal.SIGKILL)

    def output(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*/output")))


def name_of(script: Path) -> str:
    """From the properties that Snakemake writes into a job script for clusters to read."""
    line = next(line for line in script.read_text().splitlines() if line.startswith("# properties = "))
    properties = json.loads(line.removeprefix("# properties = "))
    return "-".join([properties["rule"], *properties["wildcards"].values()])


if __name__ == "__main__":
    cluster, command, word = Cluster(Path(sys.argv[1])), *sys.argv[2:]
    print(cluster.submit(word) if command == "submit" else cluster.status(int(word)))
