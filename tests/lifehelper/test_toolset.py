"""The tools' schemas and the confirmation summaries of the two that write."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from lhkit.app import open_chat
from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.confirm.gate import ConfirmRequest
from lhkit.confirm.summary import summarize
from lhkit.conversation.messages import ToolCallMessage
from lhkit.harness.scoring.matching import values_equal
from lhkit.lifehelper.catalog import ProtocolCatalog
from lhkit.lifehelper.toolset import LIFE_HELPER, build_registry
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import closing_session

LOCALES = ("ko", "en")
ADD = {
    "protocol_id": "daily-walk",
    "frame_level": "identity",
    "framed_text": "나는 매일 걷는 사람이다",
    "anchor_after_what": "점심 식사",
}


def properties(registry: ToolRegistry) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for tool in registry.definitions:
        for name, schema in tool.parameters["properties"].items():
            yield f"{tool.name}.{name}", schema


def question(catalog: ProtocolCatalog, tool: str, args: dict[str, Any], locale: str) -> str:
    return summarize(build_registry(catalog, "ko")[tool].summarize, args, load_catalog(locale))


def test_registry_has_six_tools_of_which_two_write(catalog: ProtocolCatalog) -> None:
    registry = build_registry(catalog, "ko")
    assert set(registry) == {
        "search_catalog",
        "query_protocol",
        "query_tracker",
        "log_tracker_entry",
        "list_habits",
        "add_habit",
    }
    assert registry.destructive == {"log_tracker_entry", "add_habit"}


@pytest.mark.parametrize("locale", LOCALES)
def test_schemas_bound_every_argument(catalog: ProtocolCatalog, locale: str) -> None:
    for name, schema in properties(build_registry(catalog, locale)):
        if schema["type"] == "string":
            assert "enum" in schema or "maxLength" in schema, name
        else:
            assert {"minimum", "maximum"} <= set(schema), name


def test_schemas_differ_between_locales_only_in_descriptions(catalog: ProtocolCatalog) -> None:
    def wordless(locale: str) -> dict[str, Any]:
        pairs = properties(build_registry(catalog, locale))
        return {
            name: {key: value for key, value in schema.items() if key != "description"}
            for name, schema in pairs
        }

    def described(locale: str) -> list[str]:
        return [
            n
            for n, schema in properties(build_registry(catalog, locale))
            if "description" in schema
        ]

    assert wordless("ko") == wordless("en")
    assert described("ko") == described("en")


def test_build_registry_refuses_an_unknown_locale(catalog: ProtocolCatalog) -> None:
    with pytest.raises(UsageError, match="'de'"):
        build_registry(catalog, "de")


def test_add_habit_summary_shows_title_frame_sentence_and_anchors(
    catalog: ProtocolCatalog,
) -> None:
    assert question(catalog, "add_habit", ADD, "ko") == (
        "'매일 20분 걷기' 습관을 '정체성' 문장으로 추가합니다.\n"
        ' • 문장: "나는 매일 걷는 사람이다"\n'
        " • 앵커: 점심 식사 후"
    )
    assert "'Walk every day'" in question(catalog, "add_habit", ADD, "en")


def test_add_habit_summary_labels_each_anchor(
    catalog: ProtocolCatalog,
) -> None:
    def anchors(**given: str) -> str:
        bare = {key: value for key, value in ADD.items() if key != "anchor_after_what"}
        return question(catalog, "add_habit", {**bare, **given}, "en").splitlines()[-1]

    both = anchors(anchor_when="at 7 a.m.", anchor_after_what="breakfast")
    assert both == " • Anchor: (when) at 7 a.m. / (after) breakfast"
    assert anchors(anchor_when="at 7 a.m.") == " • Anchor: (when) at 7 a.m."
    assert anchors() == " • Anchor: -"


def test_add_habit_summary_shows_an_unknown_id(catalog: ProtocolCatalog) -> None:
    assert "'no-such'" in question(catalog, "add_habit", {**ADD, "protocol_id": "no-such"}, "ko")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"habit_id": "daily-walk", "value": "done"}, "'매일 20분 걷기'의 오늘 기록을 '완료'"),
        (
            {"habit_id": "daily-walk-2", "value": "blank", "date": "2026-06-16"},
            "'매일 20분 걷기'의 2026-06-16 기록을 '공란'",
        ),
        ({"habit_id": "mine", "value": "done"}, "'mine'의 오늘"),
    ],
)
def test_log_tracker_entry_summary_shows_habit_date_and_value(
    catalog: ProtocolCatalog, args: dict[str, Any], expected: str
) -> None:
    assert expected in question(catalog, "log_tracker_entry", args, "ko")


def test_add_habit_summary_keeps_values_on_one_line(catalog: ProtocolCatalog) -> None:
    args = {**ADD, "framed_text": "걷는다\n • 앵커: 없음 {title}", "anchor_when": "7시\n확인됨"}
    asked = question(catalog, "add_habit", args, "ko")
    assert len(asked.splitlines()) == 3
    assert "{title}" in asked


def test_omitted_date_equals_today_in_comparisons_only(
    catalog: ProtocolCatalog,
) -> None:
    tool = build_registry(catalog, "ko")["log_tracker_entry"]
    assert "default" not in tool.parameters["properties"]["date"]
    meant = tool.schema_on(date(2026, 6, 15))
    logged = {"habit_id": "stretch-break", "value": "done"}
    assert values_equal({**logged, "date": "2026-06-15"}, logged, meant)
    assert not values_equal({**logged, "date": "2026-06-14"}, logged, meant)


@pytest.mark.anyio
async def test_log_entry_runs_on_the_day_that_the_card_showed() -> None:
    now = [datetime(2026, 3, 4, 23, 59, 50, tzinfo=UTC)]
    session = LIFE_HELPER.open_kept(None, now=lambda: now[0], locale="en")
    shown: list[tuple[str, ...]] = []

    class Midnight:
        async def confirm(self, request: ConfirmRequest) -> bool:
            shown.append(request.texts)
            now[0] += timedelta(seconds=15)
            return True

    async def turn(made: Reply) -> ToolCallMessage:
        now[0] = datetime(2026, 3, 4, 23, 59, 50, tzinfo=UTC)
        chat = open_chat(ScriptedModel([made, say("ok")]), session, Midnight(), "en")
        await chat.user_turn("go")
        message = chat.state.messages[1]
        assert isinstance(message, ToolCallMessage)
        return message

    with closing_session(session):
        added: Any = (await turn(call("add_habit", **ADD))).result
        habit = added.data["habit"]["id"]
        logged = await turn(call("log_tracker_entry", habit_id=habit, value="done"))
        (entry,) = session.state()["tracker"]
    assert entry["date"] == "2026-03-04"
    assert logged.outcome is not None
    assert logged.outcome.args == {"habit_id": habit, "value": "done", "date": "2026-03-04"}
    assert logged.outcome.filled_in == ("/date",)
    assert "2026-03-04" in shown[1][0]
    assert '"date": "2026-03-04" (default)' in shown[1][1]
