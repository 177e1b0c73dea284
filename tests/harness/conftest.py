"""A small domain for testing the harness: notes that can be listed, found and added."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.chat.assistant import Assistant
from lhkit.conversation.responses import Sampling
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import Load, PlainSession, Play, SteppingClock


def _find(args: Mapping[str, Any], notes: list[dict[str, Any]]) -> ToolResult:
    matches = [note for note in notes if args.get("query", "") in note["text"]]
    return ToolOk({"notes": matches[: args.get("limit", 5)]})


def _add(args: Mapping[str, Any], notes: list[dict[str, Any]]) -> ToolResult:
    if not args["text"].strip():
        return ToolErr("r1_blank", "write something")
    if args["text"] == "crash":
        raise RuntimeError("crash")
    notes.append({"id": f"note-{len(notes)}", "text": args["text"], "done": False})
    return ToolOk({"id": notes[-1]["id"]})


def _finish(args: Mapping[str, Any], notes: list[dict[str, Any]]) -> ToolResult:
    for note in notes:
        if note["id"] == args["note_id"]:
            note["done"] = args["done"]
            return ToolOk({"id": note["id"]})
    return ToolErr("not_found", f"no note {args['note_id']}")


def _schema(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


TEXT = {"type": "string", "maxLength": 80}

REGISTRY = ToolRegistry(
    [
        ToolDefinition(
            name="find_notes",
            description="Find notes",
            parameters=_schema([], query=TEXT, limit={"type": "integer", "default": 5}),
            handler=_find,
        ),
        ToolDefinition(
            name="add_note",
            description="Add a note",
            parameters=_schema(["text"], text=TEXT, tag={"enum": ["home", "work"]}),
            handler=_add,
            is_destructive=True,
            claims={"en": ["added"]},
        ),
        ToolDefinition(
            name="finish_note",
            description="Set whether a note is done",
            parameters=_schema(["note_id", "done"], note_id=TEXT, done={"type": "boolean"}),
            handler=_finish,
            is_destructive=True,
            claims={"en": ["finished"]},
        ),
    ]
)


@dataclass(kw_only=True)
class NotesSession(PlainSession):
    sampling: Sampling
    is_closed: bool = False

    @property
    def assistant(self) -> Assistant:
        return Assistant(instructions="Keep notes.", deps=self.deps, sampling=self.sampling)

    def close(self) -> None:
        self.is_closed = True


@dataclass
class NotesToolset:
    """Opens worlds like `{now: …, notes: [{id, text, done}]}`; keeps the sessions."""

    sampling: Sampling = field(default_factory=Sampling)
    registry: ToolRegistry = field(default_factory=lambda: REGISTRY)
    sessions: list[NotesSession] = field(default_factory=list)

    def open(self, world: Mapping[str, Any], locale: str) -> NotesSession:
        unknown = world.keys() - {"now", "notes"}
        if unknown:
            raise UsageError(f"world: unknown tables {sorted(unknown)}")
        notes = [{"done": False, **note} for note in world.get("notes", [])]
        now = datetime.fromisoformat(world.get("now", "2026-06-15T09:00:00+09:00"))
        session = NotesSession(
            registry=self.registry,
            seen=lambda: {"notes": notes},
            deps=notes,
            today=now.date(),
            sampling=self.sampling,
        )
        self.sessions.append(session)
        return session


@pytest.fixture
def registry() -> ToolRegistry:
    return REGISTRY


@pytest.fixture
def toolset() -> NotesToolset:
    return NotesToolset()


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function from YAML text to scenarios, through the real reader."""

    def from_text(text: str) -> tuple[Scenario, ...]:
        file = tmp_path / "scenarios.yaml"
        file.write_text(text, encoding="utf-8")
        return load_scenarios([file])

    return from_text


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def pauses() -> list[float]:
    """Return the pauses that `play` would have made, in seconds."""
    return []


@pytest.fixture
def play(toolset: NotesToolset, clock: SteppingClock, pauses: list[float]) -> Play:
    """Return `replay` without bar, wall clock and real pauses."""

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def run(scenarios: Any, model: Any = gold_model, **options: Any) -> Run:
        defaults = {"toolset": toolset, "progress": False, "clock": clock, "sleep": pause}
        return await replay(scenarios, model, **(defaults | options))

    return run
