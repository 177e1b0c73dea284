"""Rules of tools: they refuse before the user is asked, and again after an edit."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import Field

from lhkit.base.errors import RegistrationError
from lhkit.base.locales import load_catalog
from lhkit.confirm.decision import Approve, Decision, Edit, QuestionOutcome
from lhkit.confirm.gate import ConfirmRequest, ScriptedGate
from lhkit.conversation.messages import GateOutcome, ToolCallOutcome
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.definition import TODAY
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.tools.validation import invalid
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

SEARCH_FIRST = ToolErr("r1_search_first", "먼저 찾으세요: search first.")


class Ran(list[Mapping[str, Any]]):
    """The arguments of each run, and the ids that were found."""

    def __init__(self, *found: str) -> None:
        super().__init__()
        self.found = set(found)


def shop(check: Any = None, *, destructive: bool = True) -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool(
        destructive=destructive, check=check, timeout_s=5, implied={"day": TODAY}, name="delete"
    )
    def delete(
        note_id: str,
        deps: Ran,
        count: Annotated[int, Field(ge=1)] = 1,
        day: date | None = None,
    ) -> dict[str, Any]:
        """Delete a note."""
        deps.append({"note_id": note_id, "count": count, "day": str(day)})
        return {"deleted": note_id}

    return registry


def search_first(args: dict[str, Any], deps: Ran) -> ToolErr | None:
    return None if args["note_id"] in deps.found else SEARCH_FIRST


async def outcome(
    registry: ToolRegistry, args: Any, gate: Any, deps: Ran, name: str = "delete"
) -> ToolCallOutcome:
    seen: list[ToolCallOutcome] = []
    dispatcher = ToolDispatcher(
        registry, catalog=load_catalog("en"), today=lambda: date(2026, 3, 4)
    )
    result = await dispatcher.dispatch(name, args, confirm=gate, deps=deps, observe=seen.append)
    assert [one.result for one in seen] == [result]
    return seen[0]


async def test_check_refuses_before_the_user_is_asked() -> None:
    gate, deps = ScriptedGate([True, True]), Ran("n1")
    refused = await outcome(shop(search_first), {"note_id": "n2"}, gate, deps)
    assert (refused.result, refused.gate, refused.ran) == (
        SEARCH_FIRST,
        GateOutcome.NOT_NEEDED,
        False,
    )
    assert (gate.asked, list(deps)) == ([], [])
    allowed = await outcome(shop(search_first), {"note_id": "n1"}, gate, deps)
    assert (allowed.code, len(gate.asked), len(deps)) == ("ok", 1, 1)


@pytest.mark.parametrize("destructive", [True, False])
async def test_check_sees_the_arguments_of_the_card_as_a_copy(destructive: bool) -> None:
    seen: list[Any] = []

    def check(args: dict[str, Any]) -> None:
        seen.append(dict(args))
        args.clear()

    gate, deps = ScriptedGate([True]), Ran()
    done = await outcome(shop(check, destructive=destructive), {"note_id": "n", "x": 1}, gate, deps)
    assert seen == [{"note_id": "n", "count": 1, "day": "2026-03-04"}]
    assert seen == ([gate.asked[0].args] if destructive else seen)
    assert list(deps) == seen
    assert done.args == seen[0]


async def hidden_await(args: dict[str, Any], deps: Ran) -> ToolErr | None:
    await asyncio.sleep(0)
    return search_first(args, deps)


class Searches:
    """Rules as objects and methods."""

    def __call__(self, args: dict[str, Any], deps: Ran) -> ToolErr | None:
        return search_first(args, deps)

    def method(self, args: dict[str, Any], *, deps: Ran) -> ToolErr | None:
        return search_first(args, deps)


def second_by_position(args: dict[str, Any], notes: Ran, /) -> ToolErr | None:
    return search_first(args, notes)


@check_rows(
    "check",
    [search_first, hidden_await, Searches(), Searches().method, second_by_position,
     lambda args, deps=None: search_first(args, deps)],
)  # fmt: skip
async def test_check_may_be_any_callable(check: Any) -> None:
    gate, deps = ScriptedGate([True]), Ran("n1")
    assert (await outcome(shop(check), {"note_id": "n2"}, gate, deps)).result == SEARCH_FIRST
    assert (await outcome(shop(check), {"note_id": "n1"}, gate, deps)).code == "ok"


def raising(error: BaseException) -> Callable[[Any], None]:
    def check(_args: Any) -> None:
        raise error

    return check


async def never(_args: Any) -> None:
    await asyncio.Event().wait()


async def cancelled(_args: Any) -> None:
    raise asyncio.CancelledError


async def stubborn(_args: Any) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (raising(KeyError("note")), "KeyError"),
        (raising(SystemExit(2)), "SystemExit"),
        (cancelled, "CancelledError"),
        (never, "TimeoutError"),
        (stubborn, "TimeoutError"),
        (lambda _args: True, "returned bool"),
        (lambda _args: False, "returned bool"),
        (lambda _args: "no", "returned str"),
        (lambda _args: ToolOk({}), "returned ToolOk"),
        (lambda _args: ToolCancelled(), "returned ToolCancelled"),
    ],
)
async def test_failing_check_refuses_and_never_opens_the_gate(
    check: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    registry = shop(check).mapped(lambda tool: replace(tool, timeout_s=0.02))
    gate, deps = ScriptedGate([True]), Ran()
    done = await outcome(registry, {"note_id": "n"}, gate, deps)
    reason = f"Not run: the tool could not check the call: {kind}"
    assert done.result == ToolErr("handler_error", reason)
    assert (gate.asked, list(deps), done.ran) == ([], [], False)
    assert kind == "CancelledError" or [r.levelno for r in caplog.records] == [logging.ERROR]


async def test_interrupted_check_ends_the_program_and_not_the_call() -> None:
    gate, deps = ScriptedGate([True]), Ran()
    with pytest.raises(KeyboardInterrupt):
        await outcome(shop(raising(KeyboardInterrupt())), {"note_id": "n"}, gate, deps)
    assert (gate.asked, list(deps)) == ([], [])


async def test_cancelled_caller_ends_a_running_check() -> None:
    gate, deps, begun = ScriptedGate([True]), Ran(), asyncio.Event()

    async def check(_args: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    seen: list[ToolCallOutcome] = []
    dispatcher = ToolDispatcher(shop(check))
    task = asyncio.ensure_future(
        dispatcher.dispatch(
            "delete", {"note_id": "n"}, confirm=gate, deps=deps, observe=seen.append
        )
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(one.result, one.gate, one.ran) for one in seen] == [
        (ToolCancelled(), GateOutcome.NOT_NEEDED, False)
    ]
    assert gate.asked == []


class Person:
    """A person who edits, and approves what comes after an error."""

    is_person = True

    def __init__(self, *edits: Mapping[str, Any]) -> None:
        self.edits = [*edits]
        self.errors: list[str] = []

    async def confirm(self, request: ConfirmRequest) -> Decision:
        self.errors.append(request.error)
        if not self.edits:
            return Approve()
        shown = request.edited(self.edits.pop(0))
        return Edit(shown.args, binding=request.binding)


async def test_check_runs_again_on_edited_arguments() -> None:
    checked: list[Any] = []

    def check(args: dict[str, Any], deps: Ran) -> ToolErr | None:
        checked.append(args["note_id"])
        return search_first(args, deps)

    deps = Ran("n1", "n3")
    by_code = await outcome(
        shop(check), {"note_id": "n1"}, ScriptedGate([Edit({"note_id": "n2"})]), deps
    )
    assert (by_code.result, by_code.ran, list(deps)) == (SEARCH_FIRST, False, [])
    assert by_code.answer == QuestionOutcome.INVALID_EDIT
    assert checked == ["n1", "n2"]

    person = Person({"note_id": "n2"}, {"note_id": "n3"})
    by_hand = await outcome(shop(check), {"note_id": "n1"}, person, deps)
    assert (by_hand.code, [ran["note_id"] for ran in deps]) == ("ok", ["n3"])
    assert person.errors == ["", SEARCH_FIRST.reason]
    assert checked == ["n1", "n2", "n1", "n2", "n3"]


async def test_rejected_edit_by_a_failing_check_is_never_run() -> None:
    def check(args: dict[str, Any]) -> None:
        if args["note_id"] == "n2":
            raise ValueError

    deps = Ran()
    gate = ScriptedGate([Edit({"note_id": "n2"})])
    done = await outcome(shop(check), {"note_id": "n1"}, gate, deps)
    assert (done.code, done.ran, list(deps)) == ("handler_error", False, [])


async def test_registry_check_adds_rules_to_several_tools_in_order() -> None:
    registry = ToolRegistry(
        echo_tool(name, parameters=object_schema("n", n={"type": "integer"}), is_destructive=True)
        for name in ("lend", "sell", "give")
    )
    copy = registry.mapped(lambda tool: tool)

    @registry.check("lend", "sell")
    def few(args: dict[str, Any]) -> ToolErr | None:
        return ToolErr("r1_few", "at most 3") if args["n"] > 3 else None

    @registry.check("sell")
    def even(args: dict[str, Any]) -> ToolErr | None:
        return ToolErr("r2_even", "even numbers") if args["n"] % 2 else None

    assert few({"n": 1}) is None
    assert list(registry) == ["lend", "sell", "give"]

    async def code(name: str, n: int, tools: ToolRegistry = registry) -> str:
        return (await outcome(tools, {"n": n}, ScriptedGate([True]), Ran(), name)).code

    assert [await code(name, 5) for name in registry] == ["r1_few", "r1_few", "ok"]
    assert [await code(name, 3) for name in registry] == ["ok", "r2_even", "ok"]
    assert await code("sell", 3, copy) == "r2_even"


def by_name(note_id: str, count: int, day: str) -> None:
    """Take arguments by name, as the tool does."""


@check_rows(
    ("register", "message"),
    [
        (lambda _: shop("no"), "str is not callable"),
        (lambda _: shop(by_name), r"\(note_id, count, day\): a rule takes"),
        (lambda r: r.check("delet")(search_first), "no tool 'delet' yet"),
        (lambda r: r.check(search_first), "name the tools"),
        (lambda r: r.check()(search_first), "name the tools"),
        (lambda r: r.check("delete")(None), "NoneType is not callable"),
        (lambda r: r.register(replace(echo_tool("x"), check=search_first)), r"rules=\[…\]"),
        (lambda r: r.register(replace(echo_tool("x"), rules="r1")), "give a list"),
    ],
)
def test_registry_refuses_what_cannot_be_a_rule(register: Any, message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        register(shop())


async def test_refusal_that_is_not_json_is_an_error() -> None:
    def check(_args: Any) -> ToolResult:
        return ToolErr(b"r1", {1})  # type: ignore[arg-type]

    done = await outcome(shop(check), {"note_id": "n"}, ScriptedGate([True]), Ran())
    assert (done.ran, isinstance(done.result, ToolErr)) == (False, True)


BROKEN: Any = "ko: no mapping"


@check_rows(
    ("locale", "translations", "reason"),
    [
        ("ko", {"ko": "이미 있습니다."}, "이미 있습니다."),
        ("en", {"ko": "이미 있습니다."}, "It is there."),
        ("ko", {"de": "Gibt es schon."}, "It is there."),
        ("ko", None, "It is there."),
        ("ko", {"ko": ""}, "It is there."),
        ("ko", {"ko": 5}, "It is there."),
        ("ko", BROKEN, "It is there."),
    ],
)
@check_rows("place", ["tool", "check", "edit"])
async def test_reason_of_a_refusal_is_in_the_language_of_the_chat(
    place: str, locale: str, translations: Any, reason: str
) -> None:
    refused = ToolErr("r1", "It is there.", translations=translations)
    registry = ToolRegistry()

    def check(args: dict[str, Any]) -> ToolErr | None:
        return refused if place == "check" or (place == "edit" and args["n"] == 2) else None

    @registry.tool(destructive=True, check=check, name="add")
    def add(n: int) -> ToolResult:
        """Add."""
        return refused if place == "tool" else ToolOk({"n": n})

    person = Person({"n": 2}) if place == "edit" else ScriptedGate([True])
    dispatcher = ToolDispatcher(registry, catalog=load_catalog(locale))
    result = await dispatcher.dispatch("add", {"n": 1}, confirm=person)
    if isinstance(person, Person):
        assert person.errors == ["", reason]
    else:
        assert isinstance(result, ToolErr)
        assert (result.code, result.reason, result.translations) == ("r1", reason, None)


async def test_check_of_arguments_says_what_it_expects_in_the_language_of_the_chat() -> None:
    def check(args: Mapping[str, Any]) -> Any:
        later = {"ko": "시작보다 늦은 시각"}
        return invalid("end", "a time after start", args["end"], translations=later)

    tool = replace(echo_tool("book", parameters=object_schema(end={"type": "string"})), check=check)
    reasons = {}
    for locale in ("ko", "en"):
        dispatcher = ToolDispatcher(ToolRegistry([tool]), catalog=load_catalog(locale))
        result = await dispatcher.dispatch("book", {"end": "9"}, confirm=None)
        assert isinstance(result, ToolErr)
        reasons[locale] = result.reason
    assert "a time after start" in reasons["en"]
    assert "시작보다 늦은 시각" in reasons["ko"]
    assert "a time after start" not in reasons["ko"]
