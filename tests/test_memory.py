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


def test_the_tightest_limit_of_all_groups_around_the_process_holds(tmp_path: Path) -> None:
    """A service of systemd has its limit in its own group, a user's programs in one further out."""
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("1:name=systemd:/a\n0::/system.slice/neuroscope.service\n")
    service = tmp_path / "system.slice/neuroscope.service"
    service.mkdir(parents=True)
    assert memory(tmp_path, tmp_path).limit == ""
    for folder, limit, used in ((service, 4 * GB, 1 * GB), (service.parent, 6 * GB, 5 * GB)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    assert memory(tmp_path, tmp_path) == Memory(1 * GB, 4 * GB, "by the container's limit")
    (tmp_path / "self/cgroup").write_text("4:cpu,memory:/x\n0::/../elsewhere/of another namespace\n")
    assert memory(tmp_path, tmp_path).limit == ""
    (tmp_path / "memory/x").mkdir(parents=True)
    (tmp_path / "memory/x/memory.limit_in_bytes").write_text("3000000000\n")
    (tmp_path / "memory/x/memory.usage_in_bytes").write_text("500000000\n")
    assert memory(tmp_path, tmp_path) == Memory(2_500_000_000, 3 * GB, "by the container's limit")
    (tmp_path / "memory/x/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory(tmp_path, tmp_path).limit == ""
