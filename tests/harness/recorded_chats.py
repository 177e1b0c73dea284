"""Recorded chats of the pantry: scripted models and users, through the real controller."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lhkit.app import open_chat
from lhkit.base.errors import ModelError
from lhkit.confirm.decision import Decision, Edit
from lhkit.confirm.gate import ConfirmRequest
from lhkit.harness.chats.chats import ChatRecorder
from lhkit.harness.running.sessions import LiveSession
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.toolset import Toolset, load

PANTRY = f"{Path(__file__).parents[2] / 'evals' / 'pantry' / 'pantry.py'}:toolset"
NOW = datetime.fromisoformat("2026-06-15T09:00:00+09:00")
WORLD = {
    "now": NOW.isoformat(),
    "items": [{"id": "milk", "name": "milk", "amount": 9, "place": "shelf"}],
}


@dataclass(frozen=True, slots=True)
class Said:
    """A turn: the user's message, the replies of the model, the answers on its cards."""

    user: str
    replies: Sequence[Reply]
    answers: Sequence[Any] = ()


class _User:
    """Answers cards; a dictionary edits the arguments."""

    def __init__(self, answers: Iterable[Any]) -> None:
        self._answers = iter(answers)

    async def confirm(self, request: ConfirmRequest) -> Decision | bool:
        answer = next(self._answers, False)
        return Edit({**request.args, **answer}) if isinstance(answer, dict) else answer


async def record(
    folder: Path,
    *turns: Said,
    locale: str = "en",
    toolset: Toolset | None = None,
    number: int = 0,
    world: Any = None,
) -> str:
    """Record a chat, and return its name."""
    live = LiveSession(
        toolset or load(PANTRY), world or WORLD, None, now=lambda: NOW, locale=locale
    )
    recorder = ChatRecorder(folder, live, now=lambda: NOW + timedelta(minutes=number))
    model = ScriptedModel([reply for turn in turns for reply in turn.replies])
    chat = open_chat(model, live.session, None, locale, live.watch())
    chat.subscribe(recorder.handle)
    for turn in turns:
        chat.confirm = _User(turn.answers)
        await chat.user_turn(turn.user)
        recorder.save(locale)
    live.close()
    return recorder.name


def put(name: str = "tofu", amount: int = 2, place: str = "fridge") -> Reply:
    """Return a call of `add_item`."""
    return call("add_item", name=name, amount=amount, place=place)


ADDED, SURE = say("I added it."), say("Sure, no problem.")
FAILED = Reply(error=ModelError("gone"))
ASK = "put 2 tofu in the fridge"
