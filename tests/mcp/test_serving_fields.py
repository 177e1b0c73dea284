"""The fields of a served write's question: their schemas, null, and the errors of answers."""

from collections.abc import Mapping
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import CallToolRequestParams, ElicitResult

from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.conversation.tool_results import ToolOk
from lhkit.mcp.serving import McpServing
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareSession
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

SCHEMA = object_schema(
    "tags",
    tags={"type": "array", "items": {"$ref": "#/$defs/Share"}},
    share={"$ref": "#/$defs/Share"},
    level={"enum": [1, 2]},
    count={"type": ["integer", "null"], "title": "Count"},
    flag={"type": ["boolean", "null"]},
    note={"type": ["string", "null"], "title": "A note"},
    plain={"type": "integer"},
    either={"type": ["string", "integer"]},
)
SCHEMA["$defs"] = {"Share": {"enum": ["team", "public"]}}
ARGS = {
    **{"tags": ["team"], "share": "team", "level": 1, "count": 3, "flag": True, "note": None},
    **{"plain": 4, "either": "5"},
}


async def served(*answers: Mapping[str, Any], locale: str = "en") -> tuple[Any, list[Any]]:
    """Return the arguments that ran, or None, and the questions: message and schema."""
    ran: list[Mapping[str, Any]] = []
    questions: list[Any] = []

    async def elicit(message: str, schema: Any, _request_id: Any) -> ElicitResult:
        questions.append((message, schema))
        given = answers[len(questions) - 1] if len(questions) <= len(answers) else {"run": False}
        content = {
            key if key == "run" or key.startswith("=") else f"args.{key}": value
            for key, value in given.items()
        }
        content = {key.removeprefix("="): value for key, value in content.items()}
        return ElicitResult(action="accept", content=content)

    def write(args: Mapping[str, Any], _deps: Any) -> ToolOk:
        ran.append(args)
        return ToolOk({})

    tool = echo_tool("write", parameters=SCHEMA, is_destructive=True, handler=write)
    session = BareSession(
        registry=ToolRegistry([tool]), assistant=Assistant(), today=date(2026, 6, 15)
    )
    serving = McpServing(session, name="it", catalog=load_catalog(locale))
    forms = SimpleNamespace(elicitation=SimpleNamespace(form=object(), url=None))
    context: Any = SimpleNamespace(
        protocol_version="2025-06-18",
        session=SimpleNamespace(client_capabilities=forms, elicit_form=elicit),
        request_id=1,
    )
    await serving._call(context, CallToolRequestParams(name="write", arguments=ARGS))
    return (ran[0] if ran else None), questions


async def test_serving_question_has_the_fields_that_the_schema_means() -> None:
    _, [(_, schema)] = await served({"run": False})
    assert {
        name.removeprefix("args."): part
        for name, part in schema["properties"].items()
        if name.startswith("args.")
    } == {
        "tags": {"type": "string", "title": "tags (JSON)", "default": '["team"]'},
        "share": {
            **{"type": "string", "title": "share", "enum": ["team", "public"], "default": "team"}
        },
        "level": {"type": "string", "title": "level", "enum": ["1", "2"], "default": "1"},
        "count": {"type": "string", "title": "count (/null = null)", "default": "3"},
        "flag": {
            "type": "string",
            "title": "flag (/null = null)",
            "enum": ["true", "false", "/null"],
            "default": "true",
        },
        "note": {"type": "string", "title": "note (A note) (/null = null)", "default": "/null"},
        "plain": {"type": "integer", "title": "plain", "default": 4},
        "either": {"type": "string", "title": "either", "default": '"5"'},
    }


@pytest.mark.longer
@check_rows(
    ("edit", "changed"),
    [
        ({"level": "2"}, {"level": 2}),
        (
            {"count": "/null", "flag": "/null", "note": "x"},
            {"count": None, "flag": None, "note": "x"},
        ),
        ({"count": "8", "flag": "false"}, {"count": 8, "flag": False}),
        ({"plain": 5, "either": "6"}, {"plain": 5, "either": 6}),
        ({"share": "public", "tags": '["public"]'}, {"share": "public", "tags": ["public"]}),
        ({}, {}),
    ],
)
async def test_serving_runs_an_edit_after_it_was_shown(
    edit: Mapping[str, Any], changed: Mapping[str, Any]
) -> None:
    ran, questions = await served({"run": True, **edit}, {"run": True})
    assert ran == {**ARGS, **changed}
    assert len(questions) == (2 if edit else 1)


@pytest.mark.longer
@check_rows(
    ("edit", "en", "ko"),
    [
        (
            {"tags": "["},
            'tags: Invalid value. Expected: a JSON list (each item: one of "team", "public").',
            'tags: 맞지 않는 값입니다. 필요한 것: JSON 목록 (항목마다 "team", "public" 중 하나).',
        ),
        (
            {"tags": '["x"]'},
            'tags: Invalid value. Expected: a JSON list (each item: one of "team", "public").',
            'tags: 맞지 않는 값입니다. 필요한 것: JSON 목록 (항목마다 "team", "public" 중 하나).',
        ),
        (
            {"share": "x"},
            "share: Invalid value. Expected: one of team, public.",
            "share: 맞지 않는 값입니다. 필요한 것: team, public 중 하나.",
        ),
        (
            {"count": "x"},
            "count: Invalid value. Expected: a whole number or null.",
            "count: 맞지 않는 값입니다. 필요한 것: 정수 또는 null.",
        ),
        (
            {"plain": "/null"},
            "plain: Invalid value. Expected: a whole number.",
            "plain: 맞지 않는 값입니다. 필요한 것: 정수.",
        ),
        (
            {"plain": ["1"]},
            "plain: Invalid value. Expected: a whole number.",
            "plain: 맞지 않는 값입니다. 필요한 것: 정수.",
        ),
    ],
)
@check_rows("locale", ["en", "ko"])
async def test_serving_error_names_what_is_expected_and_no_library(
    edit: Mapping[str, Any], en: str, ko: str, locale: str
) -> None:
    ran, questions = await served({"run": True, **edit}, locale=locale)
    assert ran is None
    (_, (message, schema)) = questions
    assert message.endswith(f"\n{en if locale == 'en' else ko}")
    assert "pydantic" not in message
    assert schema == questions[0][1]


@pytest.mark.longer
@check_rows("locale", ["en", "ko"])
@check_rows("name", ["plain", "args", "args.", "args.Plain", "quantity\u202e", "Run"])
async def test_serving_asks_again_after_an_answer_for_no_field_of_the_question(
    name: str, locale: str
) -> None:
    """Such an answer was an edit for its sender, so the unedited write must not run."""
    ran, questions = await served({"run": True, f"={name}": 9}, locale=locale)
    assert ran is None
    (_, (message, schema)) = questions
    start = "Not in the question: " if locale == "en" else "질문에 없는 항목: "
    assert message.splitlines()[-1].startswith(start + name.replace("\u202e", ""))
    assert schema == questions[0][1]


async def test_serving_takes_an_answer_with_a_reason_beside_a_yes() -> None:
    ran, _ = await served({"run": True, "=user_message": ""})
    assert ran == ARGS
