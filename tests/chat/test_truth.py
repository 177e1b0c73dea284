"""The lines of truth come from writes, not from a status or the reply."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lhkit.base.locales import load_catalog
from lhkit.base.text import visible
from lhkit.chat.assistant import Assistant
from lhkit.chat.controller import ChatController
from lhkit.chat.truth import claim_text, find_false_claim, truth_line, truth_lines
from lhkit.confirm.decision import Edit, Reject
from lhkit.conversation.events import TurnEnded
from lhkit.conversation.messages import (
    ChangeKind,
    ClaimReason,
    GateOutcome,
    RowChange,
    ToolCall,
    ToolCallMessage,
    ToolCallOutcome,
)
from lhkit.conversation.tool_results import (
    ToolCancelled,
    ToolErr,
    ToolOk,
    ToolResult,
    encode_tool_result,
    result_to_dict,
)
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.testing import EventLog, ScriptedGate, echo_tool, object_schema
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.dispatcher import ToolDispatcher
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import watch_state
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

ENGLISH, KOREAN = load_catalog("en"), load_catalog("ko")
CLAIMS = {"ko": ["추가했"], "en": ["added"]}


@dataclass
class Shelf:
    """A session with a table of books, whose tool writes as its arguments say."""

    books: list[Any] = field(default_factory=list)
    tables: Mapping[str, list[Any]] | None = None
    is_destructive: bool = True
    result: Any = None
    writes: bool = True
    today: date = date(2026, 6, 15)
    assistant: Assistant = field(default_factory=Assistant)

    @property
    def registry(self) -> ToolRegistry:
        schema = object_schema(id={"type": "string"}, to={"type": "string"})
        tool = echo_tool(
            "add_book", parameters=schema, is_destructive=self.is_destructive, handler=self.handle
        )
        claims = CLAIMS if self.is_destructive else {}
        return ToolRegistry([replace(tool, claims=claims)])

    async def handle(self, args: Mapping[str, Any], _deps: Any) -> Any:
        if self.writes:
            self.books.append({"id": args.get("id", "b1")})
        if self.result == "late":
            await asyncio.Event().wait()
        if isinstance(self.result, BaseException):
            raise self.result
        return ToolOk({}) if self.result is None else self.result

    def state(self) -> Mapping[str, Any]:
        return {"books": self.books} if self.tables is None else self.tables

    def close(self) -> None:
        """Do nothing."""


async def lines(session: Any, *answers: Any) -> list[str]:
    """Return the English lines of truth of a turn with one call."""
    chat = ChatController(
        model=ScriptedModel([call("add_book", id="emma"), say(".")]),
        dispatcher=ToolDispatcher(session.registry),
        confirm=ScriptedGate(list(answers or [True])),
        watch=watch_state(session),
    )
    await chat.user_turn("go")
    return truth_line(chat.state.transcript.calls_of_this_turn, ENGLISH).split("\n")


BARE: Mapping[str, list[Any]] = {}
PARTIAL = ToolErr("partial", "3 of 5 rows were written")


@check_rows(
    ("shelf", "answer", "expected"),
    [
        (Shelf(), True, "Changed: books +1 · emma"),
        (Shelf(result=PARTIAL), True, "Changed: books +1 · emma (partial)"),
        (Shelf(result=ToolCancelled()), True, "Changed: books +1 · emma (cancelled)"),
        (Shelf(result=ToolOk({}, changed=False)), True, "Changed: books +1 · emma"),
        (Shelf(result=OSError()), True, "Changed: books +1 · emma (handler_error)"),
        (Shelf(writes=False), True, "Ran, nothing changed: add_book · emma"),
        (
            Shelf(writes=False, result=PARTIAL),
            True,
            "Ran, nothing changed: add_book · emma (partial)",
        ),
        (Shelf(writes=False, result=ToolOk({}, changed=True)), True, "Ran: add_book · emma"),
        (
            Shelf(writes=False, result=ToolErr("partial", "", changed=True)),
            True,
            "Failed, may have changed something: add_book · emma",
        ),
        (Shelf(tables=BARE), True, "Ran: add_book · emma"),
        (Shelf(tables=BARE, result=ToolOk({}, changed=True)), True, "Ran: add_book · emma"),
        (
            Shelf(tables=BARE, result=ToolOk({}, changed=False)),
            True,
            "Ran, nothing changed: add_book · emma",
        ),
        *(
            (
                Shelf(tables=BARE, result=result),
                True,
                "Failed, may have changed something: add_book · emma",
            )
            for result in (
                PARTIAL,
                ToolErr("not_found", ""),
                ToolErr("r1", ""),
                ToolErr("r1_x y", ""),
                ToolCancelled(),
                OSError(),
                SystemExit(),
                "not a result",
                ToolOk({"a": object()}),  # type: ignore[dict-item]
            )
        ),
        (
            Shelf(tables=BARE, result=ToolErr("r3_quota", "")),
            True,
            "Ran, nothing changed: add_book · emma (r3_quota)",
        ),
        (
            Shelf(tables=BARE, result=ToolErr("r3_quota", "", changed=True)),
            True,
            "Failed, may have changed something: add_book · emma",
        ),
        (
            Shelf(tables=BARE, result=ToolErr("full", "", changed=False)),
            True,
            "Ran, nothing changed: add_book · emma (full)",
        ),
        (Shelf(result=ToolErr("r3_quota", "")), True, "Changed: books +1 · emma (r3_quota)"),
        (Shelf(), False, "Not run: add_book · emma"),
        (Shelf(), Reject("later"), "Not run: add_book · emma"),
        (
            Shelf(is_destructive=False),
            True,
            "Ran without asking: add_book · emma (books +1 · emma)",
        ),
        (
            Shelf(is_destructive=False, tables=BARE, result=ToolOk({}, changed=True)),
            True,
            "Ran without asking: add_book · emma",
        ),
        (Shelf(is_destructive=False, writes=False), True, "Nothing was run that writes"),
        (Shelf(is_destructive=False, tables=BARE), True, "Nothing was run that writes"),
        (
            Shelf(),
            Edit({"id": "emma", "to": "Kim"}),
            'Changed: books +1 · emma (edited: to – → "Kim")',
        ),
        (Shelf(), Edit({}), 'Changed: books +1 · b1 (edited: id "emma" → –)'),
        (Shelf(tables=BARE), Edit({}), 'Ran: add_book (edited: id "emma" → –)'),
    ],
)
async def test_truth_line_has_a_row_for_each_outcome(
    shelf: Shelf, answer: Any, expected: str
) -> None:
    shelf = replace(shelf, books=[])
    assert await lines(shelf, answer) == [expected]


async def test_truth_line_of_a_call_that_may_still_write_is_not_that_nothing_changed() -> None:
    session = Shelf(writes=False, result="late")
    quick = ToolRegistry(replace(tool, timeout_s=0.01) for tool in session.registry.definitions)

    class Late:
        registry = quick
        state = staticmethod(session.state)

    assert await lines(Late()) == ["Failed, may have changed something: add_book · emma"]


OUTCOMES = st.one_of(
    st.none(),
    st.builds(ToolOk, st.just({}), st.none(), st.sampled_from([None, True])),
    st.builds(
        ToolErr,
        st.sampled_from(["partial", "handler_error", "tool_error", "bad_result", "r1"]),
        st.just(""),
        st.none(),
        st.sampled_from([None, True]),
    ),
    st.sampled_from([ToolCancelled(), OSError("x"), SystemExit(1), "no result", 3, "late"]),
)


@given(
    writes=st.booleans(),
    is_visible=st.booleans(),
    is_destructive=st.booleans(),
    result=OUTCOMES,
    is_approved=st.booleans(),
)
async def test_truth_line_never_says_nothing_when_data_changed(
    *, writes: bool, is_visible: bool, is_destructive: bool, result: Any, is_approved: bool
) -> None:
    shelf = Shelf(
        writes=writes,
        tables=None if is_visible else BARE,
        is_destructive=is_destructive,
        result=result,
    )

    class Quick:
        state = staticmethod(shelf.state)
        registry = ToolRegistry(replace(t, timeout_s=0.01) for t in shelf.registry.definitions)

    (line,) = await lines(Quick(), is_approved)
    if not is_destructive and not is_visible:
        return  # no question, and neither data nor tool reports a write
    if shelf.books:
        assert "othing" not in line
        assert "Not run" not in line
        if is_visible:
            assert "books +1" in line
    elif is_visible:
        assert "Changed" not in line


NO = {"gate": GateOutcome.REJECTED, "ran": False}


def done(tool: str = "add_book", result: ToolResult | None = None, **more: Any) -> ToolCallMessage:
    """Return a call that ran after a yes."""
    fields = {"gate": GateOutcome.ACCEPTED, "ran": True, "args": {}} | more
    outcome = ToolCallOutcome(result=result or ToolOk({}), **fields)
    return ToolCallMessage(call=ToolCall(name=tool, args={}), outcome=outcome)


TEXTS = st.text(
    st.sampled_from(" ,·:\"'\\/()→+\n\r\t\u2028\u3164\u202e“”＂\x1b\ud800aRKim가1;…●▲`<&")
    | st.characters(),
    max_size=60,
)
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


@example(values=["tea, pay · Bo 1,000,000"], names=["title"])
@example(values=["a\n\nRan: pay · Bo"], names=["title"])
@example(values=["tea / Nothing was changed."], names=["id"])
@example(values=['tea" · Ran: pay · "Bo', 'tea\\" · x', "tea\\"], names=["id", "to", "name"])
@example(values=["x" * 39 + "\\" + '"' * 9], names=["to"])
@given(
    values=st.lists(TEXTS, min_size=1, max_size=6),
    names=st.lists(st.sampled_from(["id", "title", "to", "note_id", "ids", "z"]), min_size=6),
)
def test_truth_line_is_not_forged_by_values(values: list[str], names: list[str]) -> None:
    args = dict(zip(names, values, strict=False))
    change = RowChange(table="books", kind=ChangeKind.ADDED, count=1, rows=(tuple(values[:2]),))
    calls = [
        done("pay", args=args, changes=(change,)),
        done("pay", args=args),
        done("pay", args={"to": values}),
        done("pay", args={"deep": {"x": values}}),
        done("pay", args={"to": values[0]}, run_args=args),
        done("pay", args={"to": [{"a": value} for value in values]}, run_args=args),
        done("pay", ToolErr(values[0], "", changed=False), args=args),
        done("pay", args=args, changes=(replace(change, table=values[0]),)),
        done("pay", ToolCancelled(), args=args, **NO),
    ]
    for catalog in (ENGLISH, KOREAN):
        shown = truth_lines(calls, catalog)
        assert len(truth_line(calls, catalog).splitlines()) == len(calls)
        for line in shown:
            start = catalog.text(f"truth.{line.kind}", what="")
            assert line.text.startswith(start)
            assert visible(line.text) == line.text
            rest = QUOTED.sub("", line.text.removeprefix(start))
            assert ": " not in rest.replace(catalog.text("truth.edited", edits=""), "")
            assert " · Bo" not in rest
            assert '"' not in rest  # each quote is closed


@check_rows(
    ("args", "shown"),
    [
        ({"note": "x", "id": "p1"}, "p1"),  # ids and names stand for the rest
        ({"ok": True, "n": 1, "none": None}, "1"),
        ({"id": "a\u3164b"}, '"a\\u3164b"'),
        ({"note": "x" * 41}, f'"{"x" * 39}…"'),
        ({"note": "a\nb"}, '"a\\nb"'),
        ({"note": 'say "hi"'}, '"say \\"hi\\""'),
    ],
)
def test_truth_line_names_the_arguments_that_tell_calls_apart(
    args: Mapping[str, Any], shown: str
) -> None:
    assert truth_line([done("pay", args=args)], ENGLISH) == f"Ran: pay · {shown}"


async def test_two_writes_have_a_line_each_in_their_order() -> None:
    shelf = Shelf()
    chat = ChatController(
        model=ScriptedModel([call("add_book", id="a"), call("add_book", id="b"), say(".")]),
        dispatcher=ToolDispatcher(shelf.registry),
        confirm=ScriptedGate([True, False]),
        watch=watch_state(shelf),
    )
    await chat.user_turn("go")
    calls = chat.state.transcript.calls_of_this_turn
    assert truth_line(calls, ENGLISH) == "Changed: books +1 · a\nNot run: add_book · b"


@check_rows(
    ("before", "after", "keys", "expected"),
    [
        ([{"id": 1, "n": 1}], [{"id": 1, "n": 1.0}], {}, "books ~1 · 1"),
        ([{"id": 1, "n": 1}], [{"id": 1, "n": True}], {}, "books ~1 · 1"),
        ([{"id": 1, "title": "é"}], [{"id": 1, "title": "e\u0301"}], {}, 'books ~1 · 1 "e\u0301"'),
        ([{"id": "a"}, {"id": "b"}], [{"id": "b"}, {"id": "a"}], {}, "books in another order"),
        ([{"id": "a"}], [], {}, "books -1 · a"),
        ([], [{"id": str(n)} for n in range(5)], {}, "books +5 · 0, 1, 2, … (+2)"),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}], {}, ""),
        ([{"x": 1}], [{"x": 1}, {"x": 1}], {}, "books +1"),
        (
            [{"d": "x", "h": "a"}],
            [{"d": "y", "h": "a"}],
            {"books": ["h", "d"]},
            "books +1 · a y; books -1 · a x",
        ),
        ([{"n": 1}], [{"n": 2}], {"books": []}, "books ~1"),
        (
            [{"id": "a"}],
            [{"id": "c"}, {"id": "Two words"}],
            {},
            'books +2 · c, "Two words"; books -1 · a',
        ),
    ],
)
async def test_changed_line_names_the_rows_of_each_table(
    before: list[Any], after: list[Any], keys: Mapping[str, Sequence[str]], expected: str
) -> None:
    class Session(Shelf):
        def row_keys(self) -> Any:
            return keys

        async def handle(self, _args: Any, _deps: Any) -> Any:
            self.books = after
            return ToolOk({})

    (line,) = await lines(Session(books=before))
    assert line == (f"Changed: {expected}" if expected else "Ran, nothing changed: add_book · emma")


class Clock:
    """Each read of the state takes a second."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@check_rows("reason", ["raises", "slow", "large", "async", "waits", "odd", "leaves"])
async def test_state_that_is_not_available_leaves_the_status(reason: str) -> None:
    class Session(Shelf):
        waits = reason == "waits"
        reads = 0

        def state(self) -> Any:
            self.reads += 1
            match reason:
                case "raises":
                    raise OSError("the disk is gone")
                case "leaves":
                    raise SystemExit
                case "large":
                    return {"books": [{"id": n} for n in range(11)]}
                case "async":
                    return self.later()
                case "odd":
                    return {"books": [{"id": object()}]}
            return {"books": self.books}

        async def later(self) -> Any:
            return {"books": self.books}

    session = Session()
    watch = watch_state(
        session, clock=Clock(0.2), max_read_s=0.1 if reason == "slow" else 1, max_rows=10
    )
    chat = ChatController(
        model=ScriptedModel(
            [call("add_book", id="a"), say("."), call("add_book", id="b"), say(".")]
        ),
        dispatcher=ToolDispatcher(session.registry),
        confirm=ScriptedGate([True, True]),
        watch=watch,
    )
    for title in ("a", "b"):
        await chat.user_turn("go")
        line = truth_line(chat.state.transcript.calls_of_this_turn, ENGLISH)
        assert line == f"Ran: add_book · {title}"
    assert len(session.books) == 2
    if reason in ("slow", "waits"):
        assert session.reads == (reason == "slow")


@check_rows("changed", [None, True, False, 0, "yes"])
def test_changed_is_not_sent_to_the_model(changed: Any) -> None:
    for plain, explained in (
        (ToolOk({"a": 1}), ToolOk({"a": 1}, changed=changed)),
        (ToolErr("x", "y", {"a": 1}), ToolErr("x", "y", {"a": 1}, changed)),
    ):
        assert encode_tool_result(plain) == encode_tool_result(explained)
        assert result_to_dict(plain) == result_to_dict(explained)
        assert plain == explained


@check_rows("changed", [0, 1, "no", [], object()])
async def test_changed_that_is_no_bool_says_nothing(changed: Any) -> None:
    shelf = Shelf(tables=BARE, result=ToolOk({}, changed=changed))
    assert await lines(shelf) == ["Ran: add_book · emma"]


BOTH = {"add_book": ["added", "추가했"], "share": ["shared", "공유했"]}


@check_rows(
    ("reply", "calls", "reason"),
    [
        ("Done! I have added it.", [], ClaimReason.NOTHING),
        ("네! 추가했어요.", [], ClaimReason.NOTHING),
        ("I have added it.", [done(result=ToolCancelled(), **NO)], ClaimReason.NOT_RUN),
        (
            "I have added it.",
            [done(result=ToolErr("validation", ""), gate=None, ran=False)],
            ClaimReason.NOT_RUN,
        ),
        ("추가했어요!", [done(changes=())], ClaimReason.UNCHANGED),
        ("추가했어요!", [done(result=ToolOk({}, changed=False))], ClaimReason.UNCHANGED),
        ("I have added it.", [done(result=ToolErr("handler_error", ""))], ClaimReason.FAILED),
        ("I have added it.", [done(), done("share", ToolCancelled(), **NO)], None),
        ("I have shared it.", [done(), done("share", ToolCancelled(), **NO)], ClaimReason.NOT_RUN),
        ("I have shared it.", [done()], None),  # perhaps its words for what ran
        ("I have added it.", [done()], None),
        ("I have added it.", [done(result=ToolErr("late", "")), done()], None),
        ("I have not added it.", [], None),
        ("It is already added.", [done(changes=())], None),
        ("이미 추가했어요.", [done(changes=())], None),
        ("Shall I have it added?", [], None),
        ("Hello.", [], None),
        ("", [], None),
    ],
)
def test_reply_that_contradicts_the_lines_is_marked(
    reply: str, calls: list[ToolCallMessage], reason: ClaimReason | None
) -> None:
    claim = find_false_claim(reply, calls, BOTH)
    assert (None if claim is None else claim.reason) == reason
    if claim is not None:
        for catalog in (ENGLISH, KOREAN):
            text = claim_text(claim, catalog)
            assert claim.words in text
            assert "\n" not in text


async def test_claim_of_an_earlier_turn_does_not_cover_this_one() -> None:
    shelf = Shelf()
    chat = ChatController(
        model=ScriptedModel(
            [call("add_book", id="a"), say("Added emma."), say("I have added ulysses, too.")]
        ),
        dispatcher=ToolDispatcher(shelf.registry),
        confirm=ScriptedGate([True]),
        watch=watch_state(shelf),
    )
    log = EventLog()
    chat.subscribe(log)
    await chat.user_turn("add emma")
    await chat.user_turn("and ulysses")
    first, second = (event.claim for event in log.of(TurnEnded))
    assert first is None
    assert second is not None
    assert (second.words, second.reason) == ("I have added ulysses, too.", ClaimReason.NOTHING)


async def test_slow_success_phrase_ends_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lhkit.chat.claims._PATTERN_CPU_S", 0.01)
    tool: ToolDefinition = replace(
        echo_tool("add", is_destructive=True), claims={"en": ["(?:a|a|b)*c"]}
    )
    chat = ChatController(
        model=ScriptedModel([say("ab" * 1500)]), dispatcher=ToolDispatcher(ToolRegistry([tool]))
    )
    await chat.user_turn("go")
    assert chat.state.error is None


BOOK = RowChange(table="books", kind=ChangeKind.ADDED, count=1, rows=(("emma",),))
BY_POLICY = [
    (done(), "Ran without asking: add_book", "확인 없이 실행함: add_book", True),
    (done(changes=(BOOK,)), "Ran without asking: add_book (books +1 · emma)", "", True),
    (
        done(changes=()),
        "Ran without asking, nothing changed: add_book",
        "확인 없이 실행했지만 바뀐 것 없음: add_book",
        False,
    ),
    (
        done(result=ToolErr("handler_error", "")),
        "Ran without asking, failed, may have changed something: add_book",
        "확인 없이 실행했고 실패함, 일부 바뀌었을 수 있음: add_book",
        False,
    ),
    (
        done(result=ToolErr("r3_quota", "")),
        "Ran without asking, nothing changed: add_book (r3_quota)",
        "",
        False,
    ),
]


@check_rows(("call_", "english", "korean", "has_written"), BY_POLICY)
def test_truth_line_says_that_a_policy_let_a_call_run(
    call_: ToolCallMessage, english: str, korean: str, has_written: bool
) -> None:
    assert call_.outcome is not None
    call_ = replace(call_, outcome=replace(call_.outcome, gate=GateOutcome.POLICY))
    assert truth_line([call_], ENGLISH) == english
    assert truth_line([call_], KOREAN) == korean or not korean
    claim = find_false_claim("I have added it.", [call_], BOTH)
    assert (claim is None) is has_written
