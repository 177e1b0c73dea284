"""Scenario features: argument sets, relative dates, replies, state per turn, results, schema."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lhkit.base.errors import ScenarioError
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.authoring.reference import gold_model, reference_trajectory
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.running.fingerprint import scenario_hash
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.scenarios.matchers import MATCHER_KEYS
from lhkit.harness.scenarios.relative_dates import MAX_DAYS, resolve_date
from lhkit.harness.scenarios.scenario import ExpectedReply, ReplyPart, Scenario
from lhkit.harness.scenarios.scenario_schema import scenario_json_schema
from lhkit.harness.scoring.matching import match_calls
from lhkit.harness.scoring.reply import reply_reasons
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import KeyedSession, Play
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[3] / "docs" / "scenarios.md").read_text(encoding="utf-8")
REGISTRY = ToolRegistry()
Rooms = dict[str, float]
NOW = "2026-06-17T09:00:00+09:00"  # a Wednesday
TODAY = date(2026, 6, 17)
SHOP: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "day": {"type": "string"},
        "from": {"type": "string"},
        "to": {"type": "string"},
        "size": {"type": "string", "default": "small"},
    },
}


def one_turn(**turn: Any) -> dict[str, Any]:
    return {
        "id": "add",
        "ac": "AC-4",
        "locale": "en",
        "world": {"now": NOW, "notes": [{"id": "note-0", "text": "tea"}]},
        "turns": [{"user": "add milk", "confirm": "accept", **turn}],
    }


async def run_once(data: dict[str, Any], toolset: Any, *replies: Any) -> SampleRecord:
    return await run_sample(Scenario.from_data(data), ScriptedModel(replies), toolset)


@check_rows(
    ("args", "fits"),
    [
        ({"day": "monday"}, True),
        ({"from": "monday", "to": "monday"}, True),
        ({"from": "monday", "to": "monday", "size": "small"}, True),
        ({"from": "monday"}, False),
        ({"day": "monday", "to": "monday"}, False),
        ({}, False),
    ],
)
def test_any_of_matches_when_one_argument_set_fits_whole(
    args: dict[str, Any], *, fits: bool
) -> None:
    expected = {"any_of": [{"day": "monday"}, {"from": "monday", "to": "monday"}]}
    result = match_calls(
        [{"tool": "go", "args": expected}], [{"tool": "go", "args": args}], schemas={"go": SHOP}
    )
    assert result.matched is fits


def test_any_of_reports_the_nearest_argument_set() -> None:
    expected = {"any_of": [{"day": "monday"}, {"from": "monday", "to": "friday"}]}
    result = match_calls(
        [{"tool": "go", "args": expected}],
        [{"tool": "go", "args": {"from": "monday", "to": "sunday"}}],
        schemas={"go": SHOP},
    )
    assert [(each.name, each.alternative) for each in result.arguments if not each.ok] == [
        ("to", 1)
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"any_of": []}, "add.turns[0].expect.calls[0].args.any_of: must be a list of 1 or more"),
        ({"any_of": ["x"]}, "args.any_of[0]: must be a mapping"),
        ({"any_of": [{"text": {"date": "someday"}}]}, "args.any_of[0].text.date: must be today"),
    ],
)
def test_any_of_reports_an_invalid_set_by_its_path(args: Any, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        Scenario.from_data(one_turn(expect={"calls": [{"tool": "add_note", "args": args}]}))
    assert message in str(error.value)


def test_argument_named_any_of_is_written_with_equals() -> None:
    expected = {"any_of": {"equals": [1, 2]}}
    made = {"tool": "pick", "args": {"any_of": [1, 2]}}
    assert match_calls([{"tool": "pick", "args": expected}], [made], schemas={}).matched


async def test_reference_uses_the_first_argument_set_and_no_mutant_survives(toolset: Any) -> None:
    sets = [{"text": "milk", "tag": "home"}, {"text": "milk", "tag": "work"}]
    data = one_turn(
        expect={"calls": [{"tool": "add_note", "args": {"any_of": sets}, "result": "ok"}]},
        reply={"contains_any": ["added"]},
    )
    scenario = Scenario.from_data(data | {"final": {"notes": [{"text": "milk"}]}})
    session = toolset.open(scenario.world, "en")
    assert reference_trajectory(scenario, session.registry)[0].calls[0].args == sets[0]
    report = await mutate([scenario], toolset)
    assert [str(each) for each in report.survivors] == []
    assert report.total.tried > 3


async def test_lint_checks_every_argument_set(toolset: Any, tmp_path: Path) -> None:
    file = tmp_path / "add.yaml"
    file.write_text(
        "- id: add\n  ac: AC-4\n  locale: en\n  turns:\n    - user: add milk\n"
        "      expect:\n        calls:\n          - tool: add_note\n"
        "            args: {any_of: [{text: milk}, {txet: milk}, {text: milk, tag: garden}, "
        "{tag: home}]}\n"
    )
    message = [
        (each.code, f"{each.scenario}.{each.field}")
        for each in await lint(read_sources([file]), toolset)
    ]
    here = "add.turns[0].expect.calls[0].args.any_of"
    assert ("unknown_argument", f"{here}[1].txet") in message
    assert ("refused_value", f"{here}[2].tag") in message
    assert ("missing_argument", f"{here}[3]") in message
    assert not [place for _, place in message if place.startswith(f"{here}[0]")]


@check_rows(
    ("expression", "day"),
    [
        ("today", "2026-06-17"),
        ("tomorrow+1w", "2026-06-25"),
        ("today-1d", "2026-06-16"),
        ("wednesday", "2026-06-17"),
        ("next wednesday", "2026-06-24"),
        ("last wednesday", "2026-06-10"),
        ("last friday", "2026-06-12"),
        ("next monday", "2026-06-22"),
        ("monday+2w", "2026-07-06"),
        ("weekstart", "2026-06-15"),
        ("weekendstart", "2026-06-20"),
        ("monthstart-1m", "2026-05-01"),
        ("today+8m", "2027-02-17"),
        ("monthend-4m", "2026-02-28"),
        ("monthend+1m", "2026-07-31"),
        ("2026-12-24", "2026-12-24"),
    ],
)
def test_resolve_date_returns_the_iso_date(expression: str, day: str) -> None:
    assert resolve_date(expression, TODAY) == day


def test_relative_date_too_far_away_is_refused() -> None:
    for expression in (f"today+{MAX_DAYS + 1}d", "today-99999m", "monday+5300w"):
        with pytest.raises(ScenarioError, match="within"):
            match_calls([{"tool": "go", "args": {"day": {"date": expression}}}], [], schemas={})


def test_relative_dates_are_resolved_in_world_and_reference_calls(toolset: Any) -> None:
    data = one_turn(
        gold={"calls": [{"tool": "add_note", "args": {"text": {"date": "last friday"}}}]}
    )
    data["world"]["notes"] = [{"id": "note-0", "text": {"date": "yesterday"}}]
    scenario = Scenario.from_data(data)
    assert scenario.world["notes"] == [{"id": "note-0", "text": "2026-06-16"}]
    session = toolset.open(scenario.world, "en")
    assert reference_trajectory(scenario, session.registry)[0].calls[0].args == {
        "text": "2026-06-12"
    }


def test_relative_date_in_a_world_without_a_clock_is_refused() -> None:
    data = one_turn() | {"world": {"notes": [{"text": {"date": "today"}}]}}
    with pytest.raises(ScenarioError, match=r"add\.world: date 'today' needs a clock: write world"):
        Scenario.from_data(data)


@pytest.mark.parametrize("word", ["next fryday", "today +1d", "Friday"])
def test_misspelt_relative_date_is_reported_by_its_field(word: str) -> None:
    misspelt = {"date": word}
    data = one_turn(gold={"calls": [{"tool": "add_note", "args": {"text": misspelt}}]})
    data["world"]["notes"] = [{"text": {"date": "friday"}}, {"text": "x", "tags": [misspelt]}]
    with pytest.raises(ScenarioError) as raised:
        Scenario.from_data(data)
    lines = str(raised.value).splitlines()
    assert [
        re.findall(r"add\.(\S+): date: (.*) is not a relative date: write today, ", each)
        for each in lines
    ] == [
        [("turns[0].gold.calls[0].args.text", repr(word))],
        [("world.notes[1].tags[0]", repr(word))],
    ]


def test_field_named_date_is_not_a_misspelt_relative_date() -> None:
    rows = [{"date": "some day"}, {"due": {"date": "2026-06-31"}}, {"due": {"date": "15 June"}}]
    rows.append({"release": {"date": "TBD"}, "stays": [{"date": "open"}]})
    data = one_turn()
    data["world"]["notes"] = rows
    assert Scenario.from_data(data).world["notes"] == rows


@check_rows(
    ("expected", "fitting", "wrong"),
    [
        (
            ExpectedReply(
                all_of=(
                    ReplyPart(contains_any=("7", "seven")),
                    ReplyPart(contains_any=("am", "morning")),
                )
            ),
            ["Seven in the morning.", "7 am"],
            ["At 7.", "In the morning.", ""],
        ),
        (
            ExpectedReply(contains_all=("물 마시기",), ignore="spaces"),
            ["물마시기를", "물  마시기"],
            ["물"],
        ),
        (ExpectedReply(matches="물마시기", ignore="spaces"), ["물 마시기"], ["물 마심"]),
        (ExpectedReply(excludes=("했어요",), ignore="spaces"), ["할게요"], ["했 어요"]),
    ],
)
def test_reply_with_all_of_parts_and_ignored_spaces(
    expected: ExpectedReply, fitting: Sequence[str], wrong: Sequence[str]
) -> None:
    assert [text for text in fitting if reply_reasons(expected, text)] == []
    assert [text for text in wrong if not reply_reasons(expected, text)] == []


ADD = {"calls": [{"tool": "add_note", "args": {"text": "milk"}}]}


@pytest.mark.parametrize("claims", [{"turn"}, {"scenario"}, set()])
@pytest.mark.parametrize(
    ("words", "is_claim"), [("I've added milk.", True), ("Shall I add bread, too?", False)]
)
async def test_claims_none_rejects_a_true_success_claim_too(
    toolset: Any, claims: set[str], words: str, *, is_claim: bool
) -> None:
    data = one_turn(expect=ADD, reply={"claims": "none"} if "turn" in claims else {})
    data |= {"final": {"notes": [{"text": "milk"}]}}
    data |= {"reply": {"claims": "none"}} if "scenario" in claims else {}
    record = await run_once(data, toolset, call("add_note", text="milk"), say(words))
    if claims and is_claim:
        (reason,) = record.score.reasons
        assert reason.startswith("turn 0: the reply claims ")
    else:
        assert record.score.verdict is Verdict.PASS, record.score.reasons


async def test_scenario_reply_is_checked_over_all_replies(toolset: Any) -> None:
    data = one_turn() | {"reply": {"contains_all": ["milk", "bread"], "excludes": ["eggs"]}}
    data["turns"] = [{"user": "hi"}, {"user": "and?"}]
    good = await run_once(data, toolset, say("milk"), say("bread"))
    assert good.score.verdict is Verdict.PASS
    bad = await run_once(data, toolset, say("milk"), say("eggs"))
    assert bad.score.reasons == (
        "all replies: the reply lacks 'bread'",
        "all replies: the reply says 'eggs'",
    )


async def test_reference_reply_fits_the_scenario_reply(toolset: Any) -> None:
    data = one_turn() | {"reply": {"all_of": [{"contains_any": ["milk", "cow"]}]}}
    scenario = Scenario.from_data(data)
    session = toolset.open(scenario.world, "en")
    gold = await run_sample(scenario, gold_model(scenario, session.registry), toolset)
    assert gold.score.verdict is Verdict.PASS


WHOLE = {"id": "note-1", "text": "milk", "done": False}


@pytest.mark.parametrize(
    ("row", "fits"),
    [
        ({"text": "milk"}, True),
        ({"equals": WHOLE}, True),
        ({"equals": {"text": "milk"}}, False),
        ({"fields": {"id": {"any": True}, "text": "milk", "done": False}}, True),
        ({"fields": {"text": "milk"}}, False),
        ({"fields": {"text": "milk"}, "extra": True}, True),
    ],
)
async def test_final_row_is_matched_by_some_fields_or_whole(
    toolset: Any, row: dict[str, Any], *, fits: bool
) -> None:
    data = one_turn(expect=ADD) | {"final": {"notes": [row]}}
    record = await run_once(data, toolset, call("add_note", text="milk"), say("ok"))
    assert record.score.state_equal is fits


def two_turns(**changes: Any) -> dict[str, Any]:
    data = one_turn() | {"final": {"notes": [{"text": "milk"}, {"text": "bread"}]}}
    anything = {"expect": {"extra": "any"}, "confirm": "accept"}
    data["turns"] = [
        {"user": "add milk", "final": {"notes": [{"text": "milk"}]}, **anything},
        {"user": "and bread", "final": {"notes": [{"text": "bread"}]}, **anything},
    ]
    return data | changes


MILK, BREAD = call("add_note", text="milk"), call("add_note", text="bread")


async def test_turn_final_is_checked_after_each_turn(toolset: Any) -> None:
    good = await run_once(two_turns(), toolset, MILK, say("ok"), BREAD, say("ok"))
    assert good.score.verdict is Verdict.PASS, good.score.reasons
    early = await run_once(two_turns(), toolset, MILK, BREAD, say("ok"), say("ok"))
    (reason,) = early.score.reasons
    assert reason.startswith("turn 0: notes: unlisted row")
    assert "bread" in reason
    late = await run_once(two_turns(), toolset, say("ok"), MILK, BREAD, say("ok"))
    assert [reason[:24] for reason in late.score.reasons] == [
        "turn 0: final.notes[0]: ",
        "turn 1: notes: unlisted ",
    ]
    assert early.score.state_equal is True  # the end is right: only the turns tell
    assert [score.passed for score in early.score.turn_scores] == [False, True]


async def test_turn_with_empty_final_must_change_nothing(toolset: Any) -> None:
    data = two_turns()
    data["turns"][0]["final"] = {}
    record = await run_once(data, toolset, MILK, say("ok"), BREAD, say("ok"))
    assert record.score.reasons[0].startswith("turn 0: notes: unlisted row")


async def test_turn_state_diff_is_recorded_only_where_a_turn_checks_state(
    play: Play, toolset: Any, tmp_path: Path
) -> None:
    model = ScriptedModel([MILK, say("ok"), BREAD, say("ok")])
    plain = two_turns()
    for turn in plain["turns"]:
        del turn["final"]

    asked, unasked = [
        await play([Scenario.from_data(data)], model, run_dir=tmp_path / name)
        for data, name in ((two_turns(), "asked"), (plain, "unasked"))
    ]
    assert [turn.state_diff is None for turn in asked.records[0].trajectory.turns] == [False] * 2
    assert [turn.state_diff is None for turn in unasked.records[0].trajectory.turns] == [True] * 2
    again = rescore(tmp_path / "asked", [Scenario.from_data(two_turns())], toolset)
    assert again.records == asked.records
    never = rescore(tmp_path / "unasked", [Scenario.from_data(two_turns())], toolset)
    (reason,) = never.skipped.values()
    assert reason == "turn 0: its state changes were not recorded; run the scenario again"


@REGISTRY.tool()
def warmth(room: str, deps: Rooms) -> ToolResult:
    """Return the temperature of a room."""
    return ToolOk({"celsius": deps[room]}) if room in deps else ToolErr("not_found", room)


@REGISTRY.tool()
def warmest(deps: Rooms) -> ToolResult:
    """Return the temperature of the warmest room."""
    return ToolOk({"celsius": max(deps.values())})


@REGISTRY.tool(destructive=True, claims={"en": ["heated"]})
def heat(room: str, celsius: float, deps: Rooms) -> ToolResult:
    """Heat a room."""
    deps[room] = celsius
    return ToolOk({"heated": room})


@REGISTRY.tool(destructive=True, claims={"en": ["heated"]})
def heat_all(celsius: float, deps: Rooms) -> ToolResult:
    """Heat all rooms."""
    deps.update(dict.fromkeys(deps, celsius))
    return ToolOk({"heated": "all"})


class Houses:
    name, locales = "house", ("en",)

    def open(self, world: Mapping[str, Any], locale: str) -> KeyedSession:
        rooms: Rooms = {row["name"]: row["celsius"] for row in world["rooms"]}
        return KeyedSession(
            registry=REGISTRY,
            seen=lambda: {"rooms": [{"name": name, "celsius": c} for name, c in rooms.items()]},
            deps=rooms,
            keys={"rooms": ("name",)},
            today=TODAY,
            max_turns=6,
        )


def how_warm(**expect: Any) -> dict[str, Any]:
    """The hall is asked for, and heated; any calls may do it."""
    gold = [
        {"tool": "warmth", "args": {"room": "hall"}},
        {"tool": "heat", "args": {"room": "hall", "celsius": 20}},
    ]
    return {
        "id": "how-warm",
        "ac": "rooms",
        "locale": "en",
        "world": {"now": NOW, "rooms": [{"name": "hall", "celsius": 17.5}]},
        "turns": [
            {
                "user": "How warm is the hall? Make it 20.",
                "confirm": "accept",
                "expect": {"results": [{"celsius": 17.5}], "extra": "any", **expect},
                "gold": {"calls": gold},
                "reply": {"contains_any": ["17.5"]},
            },
            {"user": "And how warm was it?", "reply": {"contains_any": ["17.5"]}},
        ],
        "final": {"rooms": [{"name": "hall", "celsius": 20}]},
    }


ONCE: list[Any] = [{"celsius": 17.5}]
TWICE = [*ONCE, {"fields": {"celsius": {"approx": 17, "abs": 1}}}]
WARMTH, WARMEST = call("warmth", room="hall"), call("warmest")
HEAT = call("heat", room="hall", celsius=20)
ANSWER = say("It was 17.5.")


@check_rows(
    ("results", "calls", "reason"),
    [
        (ONCE, (WARMTH, HEAT), None),
        (ONCE, (WARMEST, HEAT), None),
        (ONCE, (WARMEST, call("heat_all", celsius=20)), None),
        (ONCE, (call("warmth", room="attic"), WARMEST, WARMEST, HEAT), None),
        (ONCE, (HEAT,), 'turn 0: expect.results[0]: no call returned {"celsius":17.5}'),
        (ONCE, (HEAT, WARMEST), 'turn 0: expect.results[0]: no call returned {"celsius":17.5}'),
        (ONCE, (WARMEST, call("heat_all", celsius=19)), "final.rooms[0]: no row like"),
        (TWICE, (WARMEST, HEAT), "turn 0: expect.results["),
        (TWICE, (WARMEST, WARMTH, HEAT), None),
    ],
)
async def test_expected_results_need_a_call_each_that_returns_them(
    results: list[Any], calls: Sequence[Reply], reason: str | None
) -> None:
    record = await run_once(how_warm(results=results), Houses(), *calls, ANSWER, ANSWER)
    assert record.score.verdict is (Verdict.FAIL if reason else Verdict.PASS)
    assert "".join(record.score.reasons[:1]).startswith(reason or "")


async def test_expected_result_may_come_from_an_earlier_turn_but_least_counts_this_turn() -> None:
    data = how_warm()
    data["turns"][1]["expect"] = {"results": [{"celsius": 17.5}], "extra": "any"}
    gold = [WARMTH, HEAT, ANSWER]
    record = await run_once(data, Houses(), *gold, ANSWER)
    assert record.score.verdict is Verdict.PASS, record.score.reasons
    data["turns"][1]["expect"]["least"] = 1
    record = await run_once(data, Houses(), *gold, ANSWER)
    assert record.score.reasons == ("turn 1: the turn has 0 calls, expected at least 1",)
    record = await run_once(data, Houses(), *gold, WARMEST, ANSWER)
    assert record.score.verdict is Verdict.PASS, record.score.reasons


@pytest.mark.longer
async def test_mutate_skips_calls_that_return_the_expected_results() -> None:
    report = await mutate([Scenario.from_data(how_warm())], Houses())
    kinds = {each.kind for each in report.outcomes}
    assert {"drop_call", "drop_required_argument"} <= kinds
    assert [each.key for each in report.survivors] == []
    swapped = [each for each in report.outcomes if each.kind == "swap_tool"]
    assert [each.change for each in swapped] == ["heat_all in place of heat"]  # not the read


async def test_mutate_reports_a_survivor_of_a_loose_expected_result() -> None:
    loose = how_warm(results=[{"celsius": {"any": True}}])
    loose["world"]["rooms"].append({"name": "attic", "celsius": 30.0})
    report = await mutate([Scenario.from_data(loose)], Houses())
    assert "swap_tool@0.0" in {each.key for each in report.survivors}


@check_rows(
    ("expect", "message"),
    [
        ({"results": [{"a": 1}]}, "expect.results: needs calls, and none are allowed"),
        ({"least": 1}, "expect.least: needs calls, and none are allowed"),
        ({"results": [{"a": {"matches": "("}}], "extra": "any"}, r"expect.results\[0\].a"),
        ({"least": -1, "extra": "any"}, "expect.least: must be 0 or more"),
        ({"results": {"a": 1}, "extra": "any"}, "expect.results: must be a list"),
    ],
)
def test_expect_refuses_invalid_results_and_least(expect: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        Scenario.from_data(one_turn(expect=expect))


def test_reference_calls_cannot_be_derived_from_expected_results() -> None:
    data = how_warm()
    data["turns"][0].pop("gold")
    with pytest.raises(ScenarioError, match=r"lists no call .* give gold\.calls"):
        reference_trajectory(Scenario.from_data(data), REGISTRY)


def test_scenario_hash_ignores_empty_results() -> None:
    plain, explicit = one_turn(), one_turn(expect={"results": [], "least": 0})
    hashes = {scenario_hash(Scenario.from_data(each)) for each in (plain, explicit)}
    assert len(hashes) == 1
    assert scenario_hash(Scenario.from_data(how_warm())) not in hashes


def matcher_rows() -> Iterator[str]:
    """Yield the line of each matcher in the table of the page, from the schema for editors."""
    schema = scenario_json_schema()["$defs"]
    for member in schema["Matcher"]["oneOf"][:-1]:
        kind = schema[member["$ref"].removeprefix("#/$defs/")]
        more = [
            f"`{name}`: {each['description'][:1].lower()}{each['description'][1:-1]}"
            for name, each in kind["properties"].items()
            if name not in {kind["title"], "optional"}
        ]
        (given,) = kind["examples"]
        example = {kind["title"]: given[kind["title"]], **given}
        shown = yaml.safe_dump(example, default_flow_style=True, sort_keys=False, width=1000)
        about = kind["description"].split(". ")[0].removesuffix(".")
        yield f"| `{shown.strip()}` | {about} | {'; '.join(more)} |"


def test_docs_list_each_matcher_with_its_schema_description() -> None:
    assert [row for row in matcher_rows() if row not in PAGE.splitlines()] == []


def test_schema_has_a_valid_example_of_each_matcher() -> None:
    schema = scenario_json_schema()["$defs"]
    kinds = {kind["title"]: kind for kind in schema.values() if kind.get("title") in MATCHER_KEYS}
    assert kinds.keys() == set(MATCHER_KEYS)
    validator = jsonschema.Draft202012Validator({**schema["Matcher"], "$defs": schema})
    for kind in kinds.values():
        (example,) = kind["examples"]
        validator.validate(example)
        Scenario.from_data(one_turn(expect={"calls": [{"tool": "go", "args": {"x": example}}]}))


def test_schema_and_docs_name_each_relative_date() -> None:
    description = scenario_json_schema()["$defs"]["DateIs"]["description"]
    for day in (
        *("today", "yesterday", "tomorrow", "weekstart", "monthstart", "monthend"),
        *("friday", "next friday", "last friday"),
    ):
        assert day in description
        assert f"`{day}`" in PAGE
        assert resolve_date(f"{day}+1w", TODAY)


@pytest.mark.longer
def test_schema_and_parser_accept_the_same_scenario() -> None:
    data = two_turns(reply={"all_of": [{"contains_any": ["ok"]}], "ignore": "spaces"})
    data["turns"][0]["expect"]["calls"] = [{"tool": "go", "args": {"any_of": [{"x": 1}, {"y": 2}]}}]
    schema = scenario_json_schema()["$defs"]["Expect"]["properties"]
    data["turns"][1]["expect"] |= {"results": schema["results"]["examples"][0], "least": 1}
    jsonschema.validate([data], scenario_json_schema())
    Scenario.from_data(data)
