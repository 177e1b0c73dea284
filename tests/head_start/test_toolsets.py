"""Generated toolsets: many, all different, all of them real, and about none that is measured on."""

import json
import re
from collections import Counter
from functools import cache
from itertools import chain
from typing import Any, get_args

import pytest

from evals.head_start.domains import LOCALES, domains
from evals.head_start.phrases import phrases_of
from evals.head_start.toolsets import (
    SHAPES,
    SIDES,
    GeneratedSession,
    GeneratedToolset,
    IdStyle,
    toolsets,
)
from lhkit import ToolErr, ToolOk, ToolResult
from lhkit.tools.validation import Accepted

MANY = 220
MEASURED_ON = re.compile(
    r"pantry|fridge|freezer|grocer|kitchen|\bmilk|\beggs?\b|recipe|ingredient"
    r"|calendar|appointment|meeting|\bevents?\b|alarm|birthday|\bcontacts?\b|reminder"
    r"|habit|streak|diary|journal"
    r"|냉장|냉동|식료품|부엌|주방|우유|계란|달걀|장보기|요리|식재료"
    r"|일정|약속|회의|알람|생일|연락처|습관|일기",
    re.IGNORECASE,
)
"""Words of a kitchen's stock, of calendars, people and alarms, and of habits and logs."""


@cache
def many() -> tuple[GeneratedToolset, ...]:
    return tuple(toolsets(MANY, seed=1))


@cache
def spoken(number: int) -> Any:
    return json.loads(phrases_of(many()[number], seed=1))["locales"]


def opened(number: int, locale: str) -> GeneratedSession:
    return many()[number].open(spoken(number)[locale]["worlds"][0], locale)


@cache
def schemas(number: int, locale: str) -> str:
    """Return what a model reads of the tools."""
    tools = [
        (tool.name, tool.description, tool.parameters)
        for tool in opened(number, locale).registry.definitions
    ]
    return json.dumps(tools, ensure_ascii=False)


def called(session: GeneratedSession, tool: str, **args: object) -> ToolResult:
    assert isinstance(session.registry.validator(tool).check(args), Accepted)
    result = session.registry[tool].handler(args, session.assistant.deps)
    assert isinstance(result, ToolResult)
    return result


def test_hundreds_of_toolsets_are_all_different_in_names_and_schemas() -> None:
    names = {tuple(sorted(tool.name for tool in each.tools)) for each in many()}
    assert len(names) > 0.95 * MANY
    assert len({schemas(number, "en") for number in range(MANY)}) == MANY > 200
    assert len({each.domain.key for each in many()}) == len(domains()) > 40
    assert {len(each.tools) for each in many()} == set(range(2, 9))
    assert {each.manner.id_style for each in many()} == set(get_args(IdStyle))
    used = Counter(tool.shape for each in many() for tool in each.tools)
    assert used.keys() == SHAPES.keys() | SIDES.keys()


def test_a_toolset_has_no_two_tools_or_arguments_of_one_name() -> None:
    for each in many():
        assert len({tool.name for tool in each.tools}) == len(each.tools)
        for tool in each.tools:
            assert len(set(tool.names.values())) == len(tool.arguments)


def test_a_reply_tells_the_row_of_a_result_and_not_what_it_was_before() -> None:
    for each in many():
        items = {tool.names["item"] for tool in each.tools if "item" in tool.names}
        assert each.manner.one not in items  # `{book.due}` of phrases is the row looked up, if any


def test_some_tools_are_there_and_nobody_asks_for_them() -> None:
    silent = [tool for each in many() for tool in each.tools if not tool.is_asked]
    assert 0.05 < len(silent) / sum(len(each.tools) for each in many()) < 0.3
    number, tool = next(
        (number, tool)
        for number, each in enumerate(many())
        for tool in each.tools
        if not tool.is_asked
    )
    assert all(spoken(number)[locale]["tools"][tool.name] == {"say": []} for locale in LOCALES)


@pytest.mark.parametrize("locale", LOCALES)
def test_every_toolset_opens_and_is_described_and_spoken_to(locale: str) -> None:
    for number, each in enumerate(many()):
        session = opened(number, locale)
        assert len(session.registry) == len(each.tools)
        assert len(session.state()[each.manner.table]) == len(each.present)
        assert "<" not in schemas(number, locale) + each.instructions[each.manner.about[locale]]
        said = [tool["say"] for tool in spoken(number)[locale]["tools"].values()]
        assert sum(map(len, said)) > 3
        assert "<" not in json.dumps(spoken(number)[locale], ensure_ascii=False)


def test_koreans_are_described_the_tools_in_korean_or_in_english() -> None:
    is_korean = [bool(re.search("[가-힣]", schemas(number, "ko"))) for number in range(MANY)]
    assert 0.4 < sum(is_korean) / MANY < 0.95
    assert not any(re.search("[가-힣]", schemas(number, "en")) for number in range(MANY))


@pytest.mark.parametrize("locale", LOCALES)
def test_nothing_is_about_a_domain_that_a_head_start_is_measured_on(locale: str) -> None:
    for number, each in enumerate(many()):
        told = schemas(number, locale) + json.dumps(spoken(number)[locale], ensure_ascii=False)
        told += each.instructions[locale]
        assert not MEASURED_ON.findall(told), each.name


def test_the_same_seed_draws_the_same_toolsets_and_phrases() -> None:
    again = tuple(toolsets(8, seed=1))
    assert again == many()[:8]
    assert [json.loads(phrases_of(each, seed=1))["locales"] for each in again] == [
        spoken(number) for number in range(8)
    ]
    assert not set(map(repr, toolsets(8, seed=2))) & set(map(repr, again))


def test_tools_find_change_and_refuse() -> None:
    number, toolset = next(
        (number, each)
        for number, each in enumerate(many())
        if each.tool("find") and each.tool("set_state") and each.manner.id_style == "code"
    )
    session = opened(number, "en")
    find, change = toolset.tool("find"), toolset.tool("set_state")
    assert find is not None
    assert change is not None
    name = toolset.present[0]["en"]
    found = called(session, find.name, **{find.names["item"]: name.upper()})
    assert isinstance(found, ToolOk)
    row = next(iter(each for each in found.data.values() if isinstance(each, list)))[0]
    assert row[toolset.fields["label"]] == name
    item = {change.names["item"]: row[toolset.fields["id"]]}
    state = toolset.fields["state"]
    before = next(each for each in session.desk.rows if each[toolset.fields["label"]] == name)
    other = next(each for each in toolset.values("state", "en") if each != before[state])
    to_other = {change.names["state"]: other}
    assert isinstance(called(session, change.name, **item, **to_other), ToolOk)
    assert before[state] == other
    again = called(session, change.name, **item, **to_other)
    assert isinstance(again, ToolErr)
    assert again.code == "already"
    nothing = called(session, change.name, **{**item, change.names["item"]: "X9-9999"}, **to_other)
    assert isinstance(nothing, ToolErr)
    assert nothing.code == "not_found"


def test_every_kind_of_tool_is_asked_for_in_both_languages() -> None:
    for shape, told in chain(SHAPES.items(), SIDES.items()):
        for locale in LOCALES:
            assert len(set(told["say"][locale])) == len(told["say"][locale]) >= 3, shape
            assert told["replies"][locale]["ok"], shape
