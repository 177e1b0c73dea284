"""This process: its age, its machine, and what Ray reads of its environment."""

import math
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil

from lhkit.base.accelerators import accelerators, card_names

_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def process_age_s() -> float:
    """Return the age of this process in seconds, including the time of imports."""
    begun_s = psutil.Process().create_time()
    if hasattr(time, "CLOCK_BOOTTIME"):  # psutil's boot time is in whole seconds: it cancels out
        return time.clock_gettime(time.CLOCK_BOOTTIME) - (begun_s - psutil.boot_time())
    return datetime.now(UTC).timestamp() - begun_s


def hardware() -> dict[str, str | int]:
    """Return system, processor, Python version, cores and graphics cards for a manifest."""
    cards = accelerators()
    found: dict[str, str | int] = {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count() or 0,
    }
    if cards:
        found |= {"accelerators": card_names(cards), "driver": cards[0].driver}
    return found


def affinity_cores() -> int:
    """Return on how many cores this process may run, whatever the share of each."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores() -> int:
    """Return how many cores this process may use, by affinity and by the limit of its container.

    A limit of one and a half cores counts as two.
    """
    return min((affinity_cores(), *(max(1, math.ceil(limit)) for limit in _cpu_limits())))


def usable_physical_cores() -> int:
    """Return `usable_cores`, but at most as many as the machine has physical cores, if known."""
    return min(usable_cores(), psutil.cpu_count(logical=False) or usable_cores())


def _cpu_limits() -> Iterator[float]:
    """Yield the limits of this process's control groups, in cores.

    Source: `cpu.max` of the kernel's `cgroup-v2.rst`, `cpu.cfs_quota_us` of its `sched-bwc.rst`.
    """
    with suppress(OSError, ValueError):
        for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", maxsplit=2)
            root = _GROUPS / "cpu" if controllers else _GROUPS
            if not controllers or "cpu" in controllers.split(","):
                # A container may see its own group as the root, under a path of the host.
                group = root / path.lstrip("/")
                inside = (each for each in (group, *group.parents) if each.is_relative_to(root))
                for folder in inside:
                    yield from _limits_of(folder)


def _limits_of(group: Path) -> Iterator[float]:
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):  # no such file; "max" is no limit
            texts = (group.joinpath(name).read_text(encoding="utf-8") for name in names)
            quota, period = map(int, " ".join(texts).split())
            if quota > 0:  # -1 is no limit
                yield quota / period


def configure_ray() -> None:
    """Disable Ray's usage reports and its changes of the visible graphics cards.

    Ray reads this from the environment only; variables that are set are kept.
    """
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),
    ):
        os.environ.setdefault(name, value)
