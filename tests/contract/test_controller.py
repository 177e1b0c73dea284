"""The chat controller as a table: a model's messages, and what the transcript holds after them."""

import asyncio
from typing import Any

import lhkit
from lhkit.scripted import call, say
from lhkit.testing import echo_tool, object_schema
from tests.rows import check_rows

READ, WRITE = call("look", n=1), call("write", n=1)
MIXED = lhkit.Reply(
    calls=tuple(
        lhkit.ToolCall(name=name, args={"n": n})
        for n, name in enumerate(["look", "write", "write", "look"])
    )
)
CUT = lhkit.Reply(fragment='{"name":"look","param')
CUT_AFTER_A_CALL = lhkit.Reply(calls=MIXED.calls[:1], fragment=CUT.fragment)


def status(result: Any) -> str:
    if isinstance(result, lhkit.ToolErr):
        return result.code
    return "ok" if isinstance(result, lhkit.ToolOk) else "cancelled"


async def rows_and_calls(
    replies: list[lhkit.Reply], answers: list[bool] | None
) -> tuple[list[str], int]:
    """Return the messages of one user turn in short, and how often the model was called."""
    schema = object_schema(n={"type": "integer"})
    registry = lhkit.ToolRegistry(
        [
            echo_tool("look", parameters=schema),
            echo_tool("write", parameters=schema, is_destructive=True),
        ]
    )
    model = lhkit.ScriptedModel(replies)
    controller = lhkit.ChatController(
        model=model,
        dispatcher=lhkit.ToolDispatcher(registry),
        confirm=None if answers is None else lhkit.ScriptedGate(answers),
    )
    await controller.user_turn("go")
    rows = []
    for message in controller.state.transcript.messages:
        if hasattr(message, "result"):
            rows.append(f"{message.name or '?'}:{status(message.result)}")
        else:
            rows.append(f"{type(message).__name__}:{message.text}")
    return rows, len(model.requests)


TABLE: list[tuple[list[lhkit.Reply], list[bool] | None, list[str], int]] = [
    ([say("hello")], None, ["hello"], 1),
    ([READ, say("done")], None, ["look:ok", "done"], 2),
    ([WRITE, say("done")], [True], ["write:ok", "done"], 2),
    ([WRITE, say("done")], [False], ["write:cancelled", "done"], 2),
    ([WRITE, say("done")], None, ["write:cancelled", "done"], 2),
    # one question a message: the second write of a message is not asked
    (
        [MIXED, say("done")],
        [True, True],
        ["look:ok", "write:ok", "write:cancelled", "look:ok", "done"],
        2,
    ),
    # the same call again is answered without running it
    ([READ, READ, say("done")], None, ["look:ok", "look:repeated_call", "done"], 3),
    (
        [WRITE, WRITE, say("done")],
        [False, True],
        ["write:cancelled", "write:repeated_call", "done"],
        3,
    ),
    ([READ, call("look", n=2), say("done")], None, ["look:ok", "look:ok", "done"], 3),
    ([call("nothing"), say("done")], None, ["nothing:unknown_tool", "done"], 2),
    ([CUT, say("done")], None, ["?:truncated_call", "done"], 2),
    ([CUT_AFTER_A_CALL, say("done")], None, ["look:ok", "?:truncated_call", "done"], 2),
    # at most four requests for one message of the user
    (
        [call("look", n=n) for n in range(9)],
        None,
        ["look:ok", "look:ok", "look:ok", "look:ok"],
        4,
    ),
]


@check_rows(("replies", "answers", "messages", "requests"), TABLE)
def test_user_turn_leaves_these_messages(
    replies: list[lhkit.Reply], answers: list[bool] | None, messages: list[str], requests: int
) -> None:
    rows, called = asyncio.run(rows_and_calls(replies, answers))
    words = [f"ModelMessage:{row}" if ":" not in row else row for row in messages]
    assert rows == ["UserMessage:go", *words]
    assert called == requests


def test_failed_turn_can_be_retried_and_keeps_the_message_once() -> None:
    async def run() -> tuple[bool, list[str]]:
        model = lhkit.ScriptedModel([lhkit.Reply(error=lhkit.ModelError("down")), say("hello")])
        controller = lhkit.ChatController(
            model=model, dispatcher=lhkit.ToolDispatcher(lhkit.ToolRegistry())
        )
        await controller.user_turn("go")
        failed = controller.state.error is not None
        await controller.retry()
        return failed, [message.text for message in controller.state.transcript.messages]

    assert asyncio.run(run()) == (True, ["go", "hello"])


def test_stopped_turn_finishes_a_started_write_and_cancels_the_rest() -> None:
    async def run() -> list[str]:
        started, ended = asyncio.Event(), []

        async def handler(_args: Any, _deps: Any) -> lhkit.ToolResult:
            started.set()
            await asyncio.sleep(0)
            ended.append("written")
            return lhkit.ToolOk({})

        tool = echo_tool("write", is_destructive=True, handler=handler)
        calls = lhkit.Reply(calls=(*call("write").calls, *call("look").calls))
        controller = lhkit.ChatController(
            model=lhkit.ScriptedModel([calls, say("done")]),
            dispatcher=lhkit.ToolDispatcher(lhkit.ToolRegistry([tool, echo_tool("look")])),
            confirm=lhkit.ScriptedGate([True]),
        )
        turn = asyncio.create_task(controller.user_turn("go"))
        await started.wait()
        controller.stop()
        await turn
        return ended + [status(m.result) for m in controller.state.transcript.messages[1:]]

    assert asyncio.run(run()) == ["written", "ok", "cancelled"]
