"""The machine's memory, or the container's."""

from __future__ import annotations

from pathlib import Path

from neuroscope.memory import Memory, memory

GB = 1_000_000_000


def test_memory_is_the_machines_or_the_containers_if_that_is_less(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\nOdd: x\n")
    assert memory(tmp_path, tmp_path) == Memory(8_192_000_000, 16_384_000_000)
    (tmp_path / "memory.max").write_text("4096000000\n")
    (tmp_path / "memory.current").write_text("1096000000\n")
    assert memory(tmp_path, tmp_path) == Memory(3 * GB, 4_096_000_000, "by the container's limit")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory(tmp_path, tmp_path).limit == ""
    assert memory(tmp_path / "none", tmp_path / "none").total > 0, "from the system itself"
