import asyncio
import re
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from lhkit.base.errors import MissingPackageError, ServerStartError
from lhkit.models.serving import server as serving
from lhkit.models.serving import server_reaper
from lhkit.models.serving.server import HOST, StartProgress
from lhkit.models.serving.vllm_server import ServerSettings, VllmServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FAKES = Path(__file__).parent / "fakes"
PATIENCE_S = 240.0  # against a hang only


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., ServerSettings]:
    def make(mode: str = "ok", **changes: object) -> ServerSettings:
        fake = ("-S", str(FAKES / "fake_vllm.py"), "--mode", mode)
        plain = ServerSettings(
            model=tmp_path,
            served_name="fake",
            log_path=tmp_path / "server.log",
            grace_s=0.2,
            entry=(*fake, "--pids", str(tmp_path / "pids")),
        )
        return replace(plain, **changes)  # type: ignore[arg-type]  # any field

    return make


def started(folder: Path) -> list[int]:
    pids = folder / "pids"
    return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []


def alive(process: int | psutil.Process) -> bool:
    """Return whether it runs; of a `Process`, whether just this one does, not its number's next."""
    try:
        running = psutil.Process(process) if isinstance(process, int) else process
        return running.is_running() and running.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - other processes set no Event
            await asyncio.sleep(0.02)


async def test_server_runs_offline_on_loopback_and_is_ready_when_health_answers(
    settings: Callable[..., ServerSettings], tmp_path: Path
) -> None:
    seen: list[StartProgress] = []
    loading = tmp_path / "loading"
    loading.touch()

    def report(progress: StartProgress) -> None:
        seen.append(progress)
        if progress.stage == "setting up the KV cache" and len(seen) > 1:
            loading.unlink(missing_ok=True)

    started_with = settings(env={"HF_HUB_OFFLINE": "0"}, kv_cache_gib=3)
    async with VllmServer(started_with, report=report) as server:
        assert server.running
        process = psutil.Process(started(tmp_path)[0])
        environment, arguments = process.environ(), process.cmdline()
        assert server.base_url == f"http://{HOST}:{server.port}/v1"
        async with aiohttp.ClientSession() as session:
            response = await session.get(f"http://{HOST}:{server.port}/health")
            assert response.status == 200
    assert environment["VLLM_NO_USAGE_STATS"] == environment["DO_NOT_TRACK"] == "1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert environment["HF_HUB_OFFLINE"] == "0"  # the caller's word is the last
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
    assert seen[0].elapsed_s < seen[-1].elapsed_s
    assert seen[-1].stage == "setting up the KV cache"
    assert seen[-1].log_path == tmp_path / "server.log"
    assert not server.running


async def test_server_block_ends_every_process_of_a_stubborn_server(
    settings: Callable[..., ServerSettings], tmp_path: Path
) -> None:
    async with VllmServer(settings("stubborn")) as server:
        await until(lambda: len(started(tmp_path)) == 3)
        assert all(map(alive, [*started(tmp_path), server.pid]))
        tree = psutil.Process(server.pid).children(recursive=True)
        pids = [server.pid, *(process.pid for process in tree)]
        shared = Path("/dev/shm") / (tmp_path / "shared-memory").read_text()  # noqa: S108
        assert shared.exists() == (sys.platform == "linux")
    assert len(pids) == 5  # the reaper, the three, and Python's resource tracker
    assert not any(map(alive, pids))
    assert not shared.exists()


@pytest.mark.parametrize("end", ["crash", signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
async def test_server_processes_end_with_the_owner(
    end: signal.Signals | str, tmp_path: Path
) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, str(FAKES / "owner.py"), str(tmp_path)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    assert owner.stdin
    assert owner.stdout
    async with asyncio.timeout(PATIENCE_S):
        assert await owner.stdout.readline() == b"ready\n"
    await until(lambda: len(started(tmp_path)) == 3)
    tree = psutil.Process(owner.pid).children(recursive=True)
    assert len(tree) == 5  # the reaper, the three, and Python's resource tracker
    if isinstance(end, signal.Signals):
        owner.send_signal(end)
    owner.stdin.write(b"\n" if end == "crash" else b"")
    try:
        await until(lambda: not any(map(alive, tree)))
    except TimeoutError:
        raise AssertionError([each for each in tree if alive(each)]) from None
    finally:
        owner.stdin.close()
        await owner.communicate()


WITHOUT_PACKAGES = ("-S", "-m", "vllm.entrypoints.openai.api_server")


@pytest.mark.parametrize(
    ("changes", "error", "sentences"),
    [
        (
            {"mode": "dies"},
            ServerStartError,
            ("RuntimeError: no room for the cache", r"server\.log"),
        ),
        ({"mode": "port-taken"}, ServerStartError, (r"Port \d+ .* in use",)),
        (
            {"mode": "never-ready", "start_timeout_s": 0.6},
            ServerStartError,
            (r"not ready after \d+ s .*server\.log",),
        ),
        ({"python": "/no/python"}, ServerStartError, ("/no/python",)),
        ({"entry": WITHOUT_PACKAGES}, MissingPackageError, ("make venv",)),
    ],
)
async def test_server_reports_a_failed_start(
    settings: Callable[..., ServerSettings],
    tmp_path: Path,
    changes: dict[str, Any],
    error: type[Exception],
    sentences: tuple[str, ...],
) -> None:
    with pytest.raises(error) as raised:
        async with VllmServer(settings(**changes)):
            pass
    message = str(raised.value)
    assert [each for each in sentences if not re.search(each, message)] == []
    assert "\n" not in message
    assert "See root cause" not in message
    assert not any(map(alive, started(tmp_path)))


async def test_server_reports_a_port_in_use_before_the_start(
    settings: Callable[..., ServerSettings], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as vLLM does
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerStartError, match=rf"Port {port} .* in use; .* --port"):
            async with VllmServer(settings(port=port)):
                pass
    assert not started(tmp_path)


def test_server_port_is_none_that_the_system_gives_to_others() -> None:
    ports = {serving._find_port(None) for _ in range(20)}
    assert len(ports) > 1
    assert all(port in serving._PORTS for port in ports)


async def test_reaper_starts_nothing_if_the_owner_is_gone(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    reaper = await asyncio.create_subprocess_exec(
        *(sys.executable, server_reaper.__file__, str(tmp_path / "log"), "0", "touch", str(mark)),
        stdin=PIPE,
    )
    await reaper.communicate(b"")
    assert reaper.returncode == 0
    assert not mark.exists()


async def test_server_ends_with_the_block_if_the_reaper_was_killed(
    settings: Callable[..., ServerSettings], tmp_path: Path
) -> None:
    async with VllmServer(settings()) as server:
        psutil.Process(server.pid).kill()
        await until(lambda: not server.running)
    await until(lambda: not any(map(alive, started(tmp_path))))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the child")
async def test_server_ends_if_reaper_and_owner_were_killed(tmp_path: Path) -> None:
    reaper = await asyncio.create_subprocess_exec(
        *(sys.executable, server_reaper.__file__, str(tmp_path / "log"), "0", "sleep", "600"),
        stdin=PIPE,
    )
    assert reaper.stdin
    reaper.stdin.write(b"\n")
    children = psutil.Process(reaper.pid).children
    await until(lambda: [each.name() for each in children()] == ["sleep"])
    (server,) = children()
    reaper.kill()
    await reaper.wait()
    await until(lambda: not alive(server.pid))


async def test_server_stops_when_the_start_is_cancelled(
    settings: Callable[..., ServerSettings], tmp_path: Path
) -> None:
    async def serve() -> None:
        async with VllmServer(settings("never-ready")):
            pass

    task = asyncio.create_task(serve())
    await until(lambda: bool(started(tmp_path)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not any(map(alive, started(tmp_path)))


async def test_server_is_not_running_after_it_exits(
    settings: Callable[..., ServerSettings],
) -> None:
    async with VllmServer(settings()) as server, aiohttp.ClientSession() as session:
        await session.get(f"http://{HOST}:{server.port}/quit")
        await until(lambda: not server.running)
