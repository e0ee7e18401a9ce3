"""A user's machine with a hub on loopback: sources are resolved in processes of their own, by the real variables."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fakes.hub import FakeHub

ROOT = Path(__file__).parents[2]
WEIGHTS = bytes(range(256)) * 400
MODEL = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"the same weights again",
    "onnx/config.json": b"{}",
    "README.md": b"# A model",
}
SAE = "hf://org/sae/layer_20/width_16k/average_l0_71/params.npz"
FALLBACK = "NEUROSCOPE_PAIRING=smollm2-135m snakemake --cores 8 labels"
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("error")
exec(sys.argv[1])
from neuroscope.errors import SourceError
from neuroscope.sources import resolve
from neuroscope.manifest import SourcesLock
from pathlib import Path
uri, lock, update = sys.argv[2:]
try:
    found = SourcesLock(Path(lock)).resolve(uri, update=update == "update", progress=False) if lock \
        else resolve(uri, progress=False)
    print(json.dumps({"path": str(found.path), "revision": found.revision, "sha256": found.sha256}))
except SourceError as error:
    print(json.dumps({"error": str(error)}))
"""
COMMAND = """
import sys
exec(sys.argv.pop(1))
from neuroscope.cli import main
sys.exit(main(sys.argv[1:]))
"""
IMPATIENT = "import time; time.sleep = lambda seconds: None"
"""A prelude: the client's waits between its attempts take no time."""


@dataclass
class Machine:
    """A user's machine: a home of its own, and a hub to talk to."""

    home: Path
    hub: FakeHub

    def environment(self, **more: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "NEUROSCOPE_"))}
        return {
            **clean,
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.home / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NEUROSCOPE_CACHE": str(self.home / "cache"),
            "NO_PROXY": "127.0.0.1,localhost",
            **more,
        }

    def start(
        self, uri: str, *, prelude: str = "", lock: str = "", update: bool = False, **environment: str
    ) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SCRIPT, prelude, uri, lock, "update" if update else ""]
        return subprocess.Popen(
            command,
            env=self.environment(**environment),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def resolve(self, uri: str, **how: str | bool) -> dict[str, str]:
        """What `resolve` gave, or its error under "error"."""
        return outcome(self.start(uri, **how))  # type: ignore[arg-type]

    def neuroscope(
        self, *words: str, prelude: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """The command line, in a checkout of its own: the repository's configuration below `home`."""
        return subprocess.run(
            [sys.executable, "-c", COMMAND, prelude, *words],
            cwd=self.checkout,
            env=self.environment(PYTHONPATH=str(ROOT), **environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @property
    def checkout(self) -> Path:
        folder = self.home / "checkout"
        if not folder.exists():
            for name in ("config", "workflow/schemas"):
                shutil.copytree(ROOT / name, folder / name)
        return folder

    def error(self, uri: str, **how: str | bool) -> str:
        return self.resolve(uri, **how)["error"]

    def half_written(self) -> list[Path]:
        """Files that would be taken for whole ones, but are not the hub's."""
        known = {
            hashlib.sha256(content).hexdigest()
            for repository in self.hub.repositories.values()
            for files in repository.commits.values()
            for content in files.values()
        }
        found = [path for path in (self.home / "hf").rglob("snapshots/*/**/*") if path.is_file()]
        return [path for path in found if hashlib.sha256(path.read_bytes()).hexdigest() not in known]


def outcome(process: subprocess.Popen[str]) -> dict[str, str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert isinstance(port, int)
    return port
