"""The cores that a process may use, in containers too."""

from pathlib import Path

import pytest

from lhkit.base import process
from lhkit.base.process import usable_cores
from tests.rows import check_rows

CORES = 16


@check_rows(
    ("own", "files", "cores"),
    [
        ("0::/", {}, CORES),
        ("0::/", {"cpu.max": "max 100000"}, CORES),
        ("0::/", {"cpu.max": "200000 100000"}, 2),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "5000 100000"}, 1),
        ("0::/", {"cpu.max": "6400000 100000"}, CORES),
        ("0::/", {"cpu.max": "nonsense"}, CORES),
        ("0::/", {"cpu.max": ""}, CORES),
        ("nonsense", {"cpu.max": "200000 100000"}, CORES),
        # a path of the host; the container sees its own group as the root
        ("0::/kubepods/pod1", {"cpu.max": "300000 100000"}, 3),
        # a service in a slice: the smaller limit counts
        ("0::/a/b", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "300000 100000"}, 1),
        ("0::/a/b", {"a/cpu.max": "max 100000", "a/b/cpu.max": "300000 100000"}, 3),
        ("0::/a", {"other/cpu.max": "100000 100000"}, CORES),
        (
            "4:cpu,cpuacct:/docker/1\n1:name=systemd:/a\n0::/",
            {"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        (
            "4:cpu:/",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            CORES,
        ),
        (
            "3:cpuset:/\n2:cpuacct:/",
            {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            CORES,
        ),
    ],
)
def test_usable_cores_are_limited_by_the_container(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    files: dict[str, str],
    cores: int,
) -> None:
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "own").write_text(f"{own}\n", encoding="utf-8")
    monkeypatch.setattr(process, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(process, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(process, "affinity_cores", lambda: CORES)
    assert usable_cores() == cores


def test_usable_cores_without_control_groups_are_those_of_the_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_OWN_GROUPS", tmp_path / "none")
    assert usable_cores() == process.affinity_cores()
