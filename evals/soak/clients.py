"""The clients of a soak: `lhkit eval` and `lhkit chat`, disturbed, and checked after each end."""

import asyncio
import random
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from folder import (
    INTERRUPTED,
    WORLD,
    faults_of_a_finished_run,
    faults_of_complaints,
    faults_of_records,
    whole_lines,
)
from log import Log
from processes import Surroundings, kill
from talking import Talk, is_sound, rest_of, rows_of

CONCURRENCY = 4
MAX_TOKENS = 96
SAMPLES = 8
"""Of one run; then the next begins, in a folder of its own."""

_HANGS_S = 600.0
_LONGEST_PAUSE_S = 60.0
_PYTHON_STARTS_S = 1.0
"""Before that nothing of ours can say anything."""

_LINES_OF_A_TALK = 4
_FATES = ("SIGKILL", "SIGKILL", "disk full", "Ctrl-C", "left alone", "left alone")


@dataclass(slots=True, kw_only=True)
class Evals:
    """One run after the other, each by as many invocations as it takes."""

    around: Surroundings
    log: Log
    rng: random.Random
    base_url: str
    scenarios: Sequence[Path]
    number: int = 0
    process: Process | None = None

    async def invocation(self) -> None:
        """Play on at the present run, meet one fate, and look at what is on the disk."""
        folder = self.around.folder / "runs" / self._name
        before, fate = whole_lines(folder), self.rng.choice(_FATES)
        errors = self.around.folder / "eval.err"
        self.process = await self.around.start(self._command(), errors=errors)
        code = await self._meets(fate, self.process, len(before))
        after, said = whole_lines(folder), errors.read_text("utf-8", "replace")
        self.log.did(f"eval: {_words(fate, code)}")
        where = f"{self._name}, {fate}"
        self.log.held(
            "no record lost, doubled or broken", faults_of_records(before, after), where=where
        )
        self.log.held("errors are sentences", faults_of_complaints(code, said), where=where)
        self.log.held(
            "exit code of an eval", self._code_faults(fate, code, said, after), where=where
        )
        self.log.done["samples played"] += after.count(b"\n") - before.count(b"\n")
        if code in {0, 1}:
            self.number += 1

    @property
    def _name(self) -> str:
        return f"run-{self.number}"

    def _command(self) -> list[str]:
        files = random.Random(self.number).sample(self.scenarios, 3)  # noqa: S311 - no secret
        return [
            *(sys.executable, "-m", "lhkit", "eval", *map(str, files)),
            *("--base-url", self.base_url, "--name", self._name, "--limit", str(SAMPLES)),
            *("--concurrency", str(CONCURRENCY), "--max-tokens", str(MAX_TOKENS)),
        ]

    async def _meets(self, fate: str, process: Process, written_bytes: int) -> int:
        if fate == "disk full":
            limit = written_bytes + self.rng.randrange(1, 60_000)
            with suppress(psutil.Error):  # it may be over already
                psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (limit, limit))
        elif fate != "left alone":
            pause_s = self.rng.uniform(_PYTHON_STARTS_S, _LONGEST_PAUSE_S)
            done, _ = await asyncio.wait([waiting := _waiting(process)], timeout=pause_s)
            if not done:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL if fate == "SIGKILL" else signal.SIGINT)
            return await waiting
        return await _ended(process, self.log)

    def _code_faults(self, fate: str, code: int, said: str, after: bytes) -> list[str]:
        disturbed = {"SIGKILL": -signal.SIGKILL, "Ctrl-C": INTERRUPTED}.get(fate)
        if code == disturbed or (fate == "Ctrl-C" and code == -signal.SIGINT):
            return []  # before Python was up, a signal just ends it
        if code == WORLD and "lhkit: " in said:
            return []  # the disk, or no server at the start: told in a sentence
        return faults_of_a_finished_run(code, after, SAMPLES)


@dataclass(slots=True, kw_only=True)
class Chats:
    """One or two conversations at once on one database, some of them killed."""

    around: Surroundings
    log: Log
    rng: random.Random
    base_url: str
    words: Sequence[str]
    living: list[Process]

    @property
    def _database(self) -> Path:
        return self.around.folder / "chat.sqlite3"

    async def round(self) -> None:
        """Talk, be killed or not, and compare what changed with what was agreed to."""
        before = rows_of(self._database)
        count = self.rng.choice((1, 2))
        talks = await asyncio.gather(*(self._talk(n) for n in range(count)))
        told = is_sound(self._database)
        where = f"chat, {count} at once"
        self.log.held("the database is whole", [told] if told else [], where=where)
        after = rows_of(self._database)
        yeses = sum(talk.yeses for talk in talks)
        changed = max((after - before).total(), (before - after).total())
        faults = [f"{changed} rows for {yeses} yeses"] if changed > yeses else []
        self.log.held("no write without a yes", faults, where=where)
        self.log.done["questions asked"] += sum(talk.asked for talk in talks)
        self.log.done["yeses given"] += yeses
        self.log.done["rows written"] += changed

    async def _talk(self, number: int) -> Talk:
        errors = self.around.folder / f"chat-{number}.err"
        command = [sys.executable, "-m", "lhkit", "chat", "--locale", "en"]
        command += ["--base-url", self.base_url, "--db", str(self._database)]
        process = await self.around.start(command, errors=errors, talks=True)
        self.living.append(process)
        talk = Talk(process=process, rng=self.rng)
        lines = [self.rng.choice(self.words) for _ in range(_LINES_OF_A_TALK)]
        fate = self.rng.choice(("SIGKILL", "left alone", "left alone"))
        saying = asyncio.ensure_future(talk.say([*lines, "/retry"]))
        pause_s = self.rng.uniform(1, _LONGEST_PAUSE_S) if fate == "SIGKILL" else _HANGS_S
        done, _ = await asyncio.wait([saying], timeout=pause_s)
        if fate == "SIGKILL" or not done:
            kill(process)
        await saying
        await rest_of(process)
        code = await _ended(process, self.log)
        self.living.remove(process)
        self.log.did(f"chat: {_words(fate, code)}")
        said, where = errors.read_text("utf-8", "replace"), f"chat, {fate}"
        expected = {0, -signal.SIGKILL} if fate == "SIGKILL" else {0}
        known = code in expected or (code == WORLD and "lhkit: " in said)
        self.log.held("exit code of a chat", [] if known else [f"{code}"], where=where)
        self.log.held("errors are sentences", faults_of_complaints(code, said), where=where)
        return talk


def _waiting(process: Process) -> "asyncio.Future[int]":
    return asyncio.ensure_future(process.wait())


async def _ended(process: Process, log: Log) -> int:
    """Wait for a process; one that hangs is found and killed."""
    done, _ = await asyncio.wait([waiting := _waiting(process)], timeout=_HANGS_S)
    log.held("everything ends", [] if done else [f"{process.pid} hung"], where="a client")
    if not done:
        kill(process)
    return await waiting


def _words(fate: str, code: int) -> str:
    meant = {0: "ended", 1: "ended", WORLD: "ended with a fault of the world"}
    meant |= {INTERRUPTED: "interrupted", -signal.SIGINT: "interrupted", -signal.SIGKILL: "killed"}
    return f"{fate} → {meant.get(code, f'exit code {code}')}"
