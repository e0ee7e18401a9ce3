"""PyTorch as it is here: imported in a process of its own, which may fail, crash or hang without harm."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from neuroscope.doctor.check import Check
from neuroscope.doctor.words import human_bytes

_CODE = """
import json, torch
devices = []
if torch.cuda.is_available():
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        devices.append({"device": f"cuda:{number}", "name": name, "free": free, "total": total})
mps = getattr(torch.backends, "mps", None)
if mps is not None and mps.is_available():
    devices.append({"device": "mps", "name": "Apple's GPU", "free": None, "total": None})
capability = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: None)()
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None),
                  "mps": mps is not None and mps.is_built(), "cpu": capability, "devices": devices}))
"""


@dataclass(frozen=True, slots=True)
class Device:
    device: str
    name: str
    free: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class Torch:
    """What PyTorch says of itself; `failure` instead where it cannot."""

    version: str = ""
    build: str = ""
    devices: tuple[Device, ...] = field(default=())
    capability: str | None = None
    failure: str | None = None
    slow: bool = False
    """Whether it failed only to be there in time: a busy machine, or a driver that hangs."""


def look_at_torch(seconds: float) -> Torch:
    """Imports it elsewhere and reads what it says: a broken driver would hang for ever."""
    command = [sys.executable, "-P", "-c", _CODE]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Torch(failure=f"its import did not end within {seconds:.0f} s", slow=True)
    if done.returncode < 0:
        return Torch(failure=f"its import ends the process ({_signal(-done.returncode)})")
    lines = done.stdout.strip().splitlines()
    try:
        said = json.loads(lines[-1]) if done.returncode == 0 and lines else None
        if said is not None:
            return _read(said)
    except (ValueError, KeyError, TypeError):
        pass
    last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
    return Torch(failure=f"it cannot be imported ({last[:200]})")


def _read(said: dict[str, object]) -> Torch:
    kinds = [f"CUDA {said['cuda']}"] if said["cuda"] else [f"ROCm {said['hip']}"] if said["hip"] else []
    kinds += ["MPS"] if said["mps"] else []
    rows = said["devices"]
    assert isinstance(rows, list)
    capability = said["cpu"]
    return Torch(
        str(said["version"]),
        " and ".join(kinds) or "CPU only",
        tuple(Device(**row) for row in rows),
        None if capability is None else str(capability),
    )


def _installed() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "not installed"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def torch_check(torch: Torch, asked: str = "auto", has_gpu: bool | None = None) -> Check:
    """The build, and whether the device that is asked for is there."""
    if torch.slow:
        wanted = "an import of a few seconds: the machine is busy, or a driver hangs"
        return Check("PyTorch", "note", f"{_installed()}; {torch.failure}", wanted)
    if torch.failure is not None:
        return Check("PyTorch", "problem", torch.failure, "PyTorch 2.10 or newer", "./install.sh")
    words = [f"{torch.version} ({torch.build})"]
    if torch.capability:
        words.append(f"computes with {torch.capability}")
    for device in torch.devices:
        memory = (
            ""
            if device.free is None
            else f", {human_bytes(device.free)} free of {human_bytes(device.total or 0)}"
        )
        words.append(f"{device.device}: {device.name}{memory}")
    found = "; ".join(words)
    there = {device.device for device in torch.devices} | {"cpu", "auto"}
    there |= {name.partition(":")[0] for name in there}
    if asked not in there:
        wanted = f"device is {asked}, which is not here: set device (--device) to auto"
        return Check("PyTorch", "problem", found, wanted, "neuroscope serve --device auto")
    if not torch.devices and (nvidia_is_here() if has_gpu is None else has_gpu):
        if torch.build == "CPU only":
            wanted = (
                "an NVIDIA GPU is here, this build cannot use it: install PyTorch's CUDA build to have it"
            )
        else:
            wanted = (
                "an NVIDIA GPU is here and PyTorch cannot use it: its driver may be too old (nvidia-smi says)"
            )
        return Check("PyTorch", "note", found, wanted)
    return Check("PyTorch", "ok", found)


def nvidia_is_here() -> bool:
    """Whether a driver of NVIDIA's is loaded, or its tool is on the path."""
    return (
        Path("/proc/driver/nvidia/version").exists()
        or shutil.which("nvidia-smi", path=os.environ.get("PATH")) is not None
    )
