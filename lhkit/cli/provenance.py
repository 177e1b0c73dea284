"""What only the command line knows of a run: when, by which command, at which commit, on what."""

import asyncio

from lhkit.harness.manifest import Provenance
from lhkit.settings import Settings, hardware


async def provenance(settings: Settings, command: tuple[str, ...] = ()) -> Provenance:
    """Return it for a run that begins now."""
    return Provenance(
        started_at=settings.now(),
        command=command,
        git_commit=await _git_commit(),
        hardware=hardware(),
    )


async def _git_commit() -> str | None:
    """Return the commit of the folder we are in, None outside a repository or without git."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "rev-parse", "HEAD"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    output, _ = await process.communicate()
    return output.decode().strip() or None
