"""A process that owns a stubborn server, says when it is ready, and then waits to be ended."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from lhkit.models.serving.vllm_server import ServerSettings, VllmServer

FAKE = Path(__file__).with_name("fake_vllm.py")


async def own(folder: Path) -> None:
    settings = ServerSettings(
        model=folder,
        served_name="fake",
        log_path=folder / "server.log",
        grace_s=0.2,
        entry=("-S", str(FAKE), "--mode", "stubborn", "--pids", str(folder / "pids")),
    )
    async with VllmServer(settings):
        os.write(1, b"ready\n")
        await asyncio.to_thread(sys.stdin.readline)
        os._exit(1)  # a crash: nothing of ours gets to run


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever was inherited
    with asyncio.Runner() as runner:
        runner.run(own(Path(sys.argv[1])))
