"""Soak lhkit: chat and eval against a real served Gemma while everything is killed at random.

    python evals/soak/run.py                       # 30 minutes, into evals/soak/RESULTS.md
    python evals/soak/run.py --stand-in --minutes 2 --page soak.md     # the soak itself, tried out

Loopback only, no root. Ends with 1 if something was found. What the seed fixes is the plan; when
a signal lands is also the machine's doing.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from clients import Chats, Evals
from log import Log
from page import page
from processes import Surroundings, gone, is_command, kill, resident_mib
from server import Server

from lhkit import __version__, app
from lhkit.harness.scenario import load_scenarios
from lhkit.lifehelper.shipped import scenario_paths
from lhkit.settings import load_settings

_HERE = Path(__file__).parent
_WEIGH_S = 5.0
_CLIENT_MIB = {"eval": 600.0, "chat": 400.0}
_SERVER_LIVES_S = (60.0, 300.0)
_STAND_IN_LIVES_S = (5.0, 20.0)
_ENDING_S = 60.0
_PATIENCE_S = 60.0


class Soak:
    """One soak: a server, a runner of evals, a talker, and what disturbs them."""

    def __init__(self, asked: argparse.Namespace, around: Surroundings) -> None:
        began_s = time.monotonic()
        self.log = Log(clock=lambda: time.monotonic() - began_s, show=_show)
        self._asked = asked
        self._around = around
        self._server_lives_s = _STAND_IN_LIVES_S if asked.stand_in else _SERVER_LIVES_S
        self._rng = random.Random(asked.seed)  # noqa: S311 - no secret
        self._server = Server(around, self.log, weights=asked.weights, port=asked.port)
        paths = sorted(scenario_paths("dev")[0].glob("*.yaml"))
        told = {turn.user for each in load_scenarios(paths) for turn in each.turns}
        url = self._server.base_url
        self._evals = Evals(
            around=around, log=self.log, rng=self._another_rng(), base_url=url, scenarios=paths
        )
        self._chats = Chats(
            around=around,
            log=self.log,
            rng=self._another_rng(),
            base_url=url,
            words=sorted(text for text in told if "\n" not in text),
            living=[],
        )

    def _another_rng(self) -> random.Random:
        return random.Random(self._rng.random())  # noqa: S311 - no secret

    @property
    def _is_over(self) -> bool:
        over: bool = self.log.clock() > self._asked.minutes * 60
        return over

    async def run(self) -> None:
        """Soak until the time is over, then end all and look for what is left."""
        try:
            await self._server.start()
            async with asyncio.TaskGroup() as group:
                weighing = group.create_task(self._weigh())
                for each in (self._evals.invocation, self._chats.round):
                    group.create_task(self._again_and_again(each))
                await self._disturb_the_server()
                weighing.cancel()
        finally:
            await self._server.end()
            left = await gone(list(self._around.marked()), _ENDING_S)
            self.log.held("no orphan processes", map(str, left), where="the end")
            for process in left:
                kill(process)

    async def _again_and_again(self, once: Callable[[], Awaitable[None]]) -> None:
        """Play invocation after invocation; without a server only one, or they would starve it."""
        while not self._is_over:
            await once()
            if not self._server.up.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._server.up.wait(), _PATIENCE_S)

    async def _disturb_the_server(self) -> None:
        while not self._is_over:
            rest_s = self._asked.minutes * 60 - self.log.clock()
            await asyncio.sleep(min(rest_s + 1, self._rng.uniform(*self._server_lives_s)))
            if not self._is_over:
                await self._server.killed(self._rng)
                await asyncio.sleep(self._rng.uniform(0, 20))  # clients meet an empty port
                await self._server.start()

    async def _weigh(self) -> None:
        while True:
            await asyncio.to_thread(self._weigh_all)
            await asyncio.sleep(_WEIGH_S)

    def _weigh_all(self) -> None:
        self._server.weigh()
        ours = list(self._around.marked())
        for word, most_mib in _CLIENT_MIB.items():
            for client in ours:
                if not is_command(client, word):
                    continue
                mib = resident_mib([client])
                self.log.weighed(f"one {word}", mib)
                faults = [f"{mib:.0f} MiB"] if mib > most_mib else []
                self.log.held("memory is bounded", faults, where=word)


def _show(line: str) -> None:
    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=8517)
    parser.add_argument("--weights", type=Path, help="a served folder; default: the embedded gemma")
    parser.add_argument(
        "--stand-in", action="store_true", help="no vLLM: tries out the soak itself"
    )
    parser.add_argument("--page", type=Path, default=_HERE / "RESULTS.md")
    parser.add_argument("--keep", action="store_true", help="keep the folder of runs and logs")
    asked = parser.parse_args()
    asked.weights = asked.weights or app.embedded_folder("gemma", load_settings())
    return asked


def _surroundings(folder: Path, *, is_stand_in: bool) -> Surroundings:
    own = {name: str(folder / name) for name in ("cache", "data", "config")}
    places = {f"LHKIT_{name.upper()}_DIR": path for name, path in own.items()}
    mark = f"{os.getpid()}-{folder.name}"
    variables = {**os.environ, **places, "LHKIT_LOCALE": "en"}  # noqa: TID251 - for the children
    if is_stand_in:
        found = [str(_HERE / "stand_in"), variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    return Surroundings(folder=folder, mark=mark, variables=variables)


def _facts(asked: argparse.Namespace, took_s: float) -> dict[str, object]:
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "command": f"`{shlex.join(['python', 'evals/soak/run.py', *sys.argv[1:]])}`",
        "asked for": f"{asked.minutes:g} minutes, seed {asked.seed}",
        "took": f"{took_s / 60:.0f} minutes",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory_gib:.0f} GiB, Python {platform.python_version()}",
        "lhkit": __version__,
        "model": "none: a stand-in for vLLM" if asked.stand_in else asked.weights.name,
    }


def main() -> None:
    """Soak, write the page, and leave with 1 if something was found."""
    asked = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="lhkit-soak-"))
    soak = Soak(asked, _surroundings(folder, is_stand_in=asked.stand_in))
    try:
        asyncio.run(soak.run())  # noqa: TID251 - a script
    except Exception as error:  # noqa: BLE001 - whatever it is, the page has to say so
        soak.log.held("the soak itself goes on", [repr(error)], where="the soak")
    finally:
        told = page(soak.log, _facts(asked, soak.log.clock()), datetime.now(UTC))  # noqa: TID251 - a script
        asked.page.write_text(told, encoding="utf-8")
        _show(told)
        if not asked.keep:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            _show(json.dumps(str(folder)))
    sys.exit(1 if soak.log.findings else 0)


if __name__ == "__main__":
    main()
