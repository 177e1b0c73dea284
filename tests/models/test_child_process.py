"""A child process of ours: what it says is told, and it does not outlive its waiter."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from lhkit.models.child_process import run_to_end

pytestmark = pytest.mark.anyio

WAITS = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))"


async def test_the_exit_code_and_standard_error_are_returned_and_standard_output_is_not() -> None:
    script = "import sys; print('out'); print('물', file=sys.stderr); sys.exit(3)"
    assert await run_to_end(sys.executable, "-c", script) == (3, "물\n")


async def test_whoever_stops_waiting_ends_the_process(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    script = f"{WAITS}; time.sleep(600)"
    waiting = asyncio.create_task(run_to_end(sys.executable, "-c", script, str(started)))
    pid = int(await asyncio.to_thread(started.read_text))  # comes when the child writes it
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not psutil.pid_exists(pid)
