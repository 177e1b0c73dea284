"""`lhkit serve`: the embedded Gemma, kept running and findable."""

import asyncio
import shlex
import signal

from rich.console import Console

from lhkit import app
from lhkit.commands.progress import setup_progress
from lhkit.errors import ServerStartError, UsageError
from lhkit.models.families import serve_command
from lhkit.models.running_servers import advertised, find_running
from lhkit.models.vllm_server import VllmServer
from lhkit.settings import Settings

_WATCH_S = 0.5


async def show_line(model: str, device: str) -> int:
    """Print the command line that serves `model` well, for any machine; return the exit code.

    Raises:
        UsageError: no such device.
    """
    if device not in ("gpu", "cpu"):
        raise UsageError(f"no device {device!r}: choose gpu or cpu")
    line = shlex.join(serve_command(model, "gpu" if device == "gpu" else "cpu"))
    Console(highlight=False, markup=False).print(line, soft_wrap=True)
    return 0


async def serve_embedded(model: str, port: int | None, settings: Settings) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code.

    Raises:
        UsageError: no such embedded model.
        SetupError: the server cannot be started, or died.
    """
    name = app.embedded_name(model)
    running = await find_running(settings.cache_dir, name)
    console = Console()
    if running is not None:
        console.print(f"{name} is already served at {running.base_url} (pid {running.pid}).")
        return 0
    with setup_progress() as reports:
        plan = await app.embedded_server(settings, reports.weights, port=port)
        server = VllmServer(plan, report=reports.server)
        await server.__aenter__()
    try:
        async with advertised(settings.cache_dir, server):
            console.print(f"{name} is served at {server.base_url}. Ctrl-C ends it.")
            console.print(f"log: {plan.log_path}")
            await _until_told(server)
    finally:
        await server.__aexit__(None, None, None)
    return 0


async def _until_told(server: VllmServer) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    while not told.is_set():
        if not server.running:
            log = server.settings.log_path
            raise ServerStartError(f"the server has ended by itself: read its log {log}")
        try:
            await asyncio.wait_for(told.wait(), _WATCH_S)
        except TimeoutError:
            continue
