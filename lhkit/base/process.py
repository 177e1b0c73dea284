"""This process: its age, its machine, and what Ray reads of its environment."""

import os
import platform
import time
from datetime import UTC, datetime

import psutil

from lhkit.base.accelerators import accelerators, card_names


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


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_physical_cores() -> int:
    """Return the same, with the hardware threads of a core counted once where that is known."""
    return min(usable_cores(), psutil.cpu_count(logical=False) or usable_cores())


def configure_ray() -> None:
    """Disable Ray's usage reports and its changes of the visible graphics cards.

    Ray reads this from the environment only; variables that are set are kept.
    """
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),
    ):
        os.environ.setdefault(name, value)
