"""A command run to its end: whoever stops waiting for it ends it, so that none is left behind."""

import asyncio
import sys


async def run_to_end(*command: str) -> tuple[int, str]:
    """Run a command without input; return its exit code and all that it wrote to standard error.

    Cancelling kills it, and waits until it is gone.

    Raises:
        OSError: the command cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, told = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, told.decode(errors="replace")


async def run_offline(*arguments: str) -> tuple[int, str]:
    """Run Python in a process of its own, offline, so that its memory goes away with it.

    Returns its exit code and the last line that it wrote to standard error.
    """
    code, output = await run_to_end("env", "HF_HUB_OFFLINE=1", sys.executable, "-P", *arguments)
    return code, (output.strip().splitlines() or ["no message"])[-1]
