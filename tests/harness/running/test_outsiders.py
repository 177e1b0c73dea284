"""Foreign toolsets: mutable shared objects, numbers that change type, consumed initial states.

In the style of public benchmarks: reference calls pass on every repeat in one process, altered
ones fail, and running a scenario does not change it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from lhkit.base.errors import ScenarioError
from lhkit.conversation.messages import ToolCall
from lhkit.conversation.tool_results import ToolErr, ToolOk, ToolResult
from lhkit.harness.authoring.lint import scenario_remarks
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.authoring.reference import (
    TurnTrace,
    gold_model,
    reference_trajectory,
    trace_model,
)
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ChatModel
from lhkit.testing import object_schema
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import Toolset, registry_of
from tests.harness.build import KeyedSession, Load, Play

pytestmark = pytest.mark.anyio
TEXT, NUMBER = {"type": "string"}, {"type": "number"}


class Session(KeyedSession):
    """A user's session without `copy()`."""

    def broken_rules(self, before: Any, after: Any) -> list[tuple[str, str]]:
        for state in (before, after):
            state.clear()
        return []


def tools(*given: tuple[str, Any, dict[str, Any]], reads: Iterable[str] = ()) -> ToolRegistry:
    return ToolRegistry(
        ToolDefinition(
            name=name,
            description=name,
            parameters=object_schema(*schema, **schema),
            handler=handler,
            is_destructive=name not in reads,
        )
        for name, handler, schema in given
    )


def transfer(args: Mapping[str, Any], db: dict[str, Any]) -> ToolResult:
    source, target = db["accounts"][args["source"]], db["accounts"][args["target"]]
    source["balance"] = source["balance"] - args["amount"] * 1.0  # a float from now on
    target["balance"] = target["balance"] + args["amount"] * 1.0
    source["history"].append(args)
    return ToolOk(source)


def close_account(args: Mapping[str, Any], db: dict[str, Any]) -> ToolResult:
    return ToolOk(db["accounts"].pop(args["account"]))


class Bank:
    registry = tools(
        ("transfer", transfer, {"source": TEXT, "target": TEXT, "amount": NUMBER}),
        ("close_account", close_account, {"account": TEXT}),
        ("look_up", lambda args, db: ToolOk(db["accounts"][args["account"]]), {"account": TEXT}),
        reads=["look_up"],
    )

    def open(self, world: Any, _locale: str) -> Session:
        world["accounts"] = {row["account_number"]: row for row in world["accounts"]}
        return Session(
            registry=self.registry,
            deps=world,
            seen=lambda: {"accounts": list(world["accounts"].values())},
            keys={"accounts": ["account_number"]},
        )


BANK = """
- id: there-and-back
  ac: bank
  world: &world
    accounts:
      - {account_number: a, balance: 1000, history: []}
      - {account_number: b, balance: 5, history: []}
      - {account_number: c, balance: 0, history: []}
  turns:
    - user: send 250 to b and back, then close c
      confirm: accept
      expect:
        calls:
          - {tool: look_up, args: {account: a}}
          - {tool: transfer, args: {source: a, target: b, amount: 250}, result: ok}
          - {tool: transfer, args: {source: b, target: a, amount: 250.0}, result: ok}
        order: strict
    - user: close c
      confirm: accept
      expect: {calls: [{tool: close_account, args: {account: c}, result: ok}]}
  final:
    accounts:
      - {account_number: a, balance: 1000, history: {items: [{fields: {}, extra: true}]}}
      - {account_number: b, balance: 5, history: {items: [{fields: {}, extra: true}]}}
  gone: {accounts: [{account_number: c}]}
"""


def pay(args: Mapping[str, Any], world: dict[str, Any]) -> ToolResult:
    cards = world["cards"]
    if not cards or cards[0]["limit"] < args["amount"]:
        return ToolErr("no_card", "there is no card left: add one")
    spent = cards.pop(0)
    spent["limit"] -= args["amount"]
    world.setdefault("receipts", []).append({"uuid": f"r{len(cards)}", "paid": args["amount"]})
    return ToolOk(spent)


class Payments:
    registry = tools(("pay", pay, {"amount": NUMBER}))

    def open(self, world: Any, _locale: str) -> Session:
        return Session(registry=self.registry, deps=world, seen=lambda: world)


PAYMENTS = """
- id: pay-twice
  ac: pay
  world: {cards: [{card_id: x, limit: 10}, {card_id: y, limit: 20}, {card_id: z, limit: 30}]}
  turns:
    - user: pay ten
      confirm: accept
      expect: {calls: [{tool: pay, args: {amount: 10}, result: ok}]}
    - user: and twenty
      confirm: accept
      expect: {calls: [{tool: pay, args: {amount: 20}, result: ok}]}
  final: {receipts: [{paid: 10}, {paid: 20}]}
  gone: {cards: [{card_id: x}, {card_id: y}]}
"""


class Car:
    def __init__(self, world: dict[str, Any]) -> None:
        self.doors: dict[str, str] = world["doors"]
        self.fuel_level: float = world["fuel_level"]
        self.engine = "stopped"

    def lock_doors(self, doors: list[str]) -> dict[str, Any]:
        while doors:
            self.doors[doors.pop()] = "locked"  # and the caller's list is empty
        return self.doors

    def fill_fuel_tank(self, litres: float) -> dict[str, Any]:
        self.fuel_level += litres
        return vars(self)

    def start_engine(self) -> dict[str, Any]:
        if "unlocked" in self.doors.values():
            raise ValueError("a door is open")
        self.engine = "running"
        return vars(self)


class Cars:
    registry = tools(
        (
            "lock_doors",
            lambda args, car: ToolOk(car.lock_doors(args["doors"])),
            {"doors": {"type": "array", "items": TEXT}},
        ),
        (
            "fill_fuel_tank",
            lambda args, car: ToolOk(car.fill_fuel_tank(**args)),
            {"litres": NUMBER},
        ),
        ("start_engine", lambda _args, car: ToolOk(car.start_engine()), {}),
    )

    def open(self, world: Any, _locale: str) -> Session:
        car = Car(world["car"][0])
        return Session(
            registry=self.registry, deps=car, seen=lambda: {"car": [vars(car)]}, keys={"car": ()}
        )


CAR = """
- id: drive
  ac: car
  world: {car: [{doors: {left: unlocked, right: unlocked}, fuel_level: 5}]}
  turns:
    - user: lock up
      confirm: accept
      expect: {calls: [{tool: lock_doors, args: {doors: [left, right]}, result: ok}]}
    - user: ten litres
      confirm: accept
      expect: {calls: [{tool: fill_fuel_tank, args: {litres: 10}, result: ok}]}
    - user: and go
      confirm: accept
      expect: {calls: [{tool: start_engine, result: ok}]}
  final:
    car: [{doors: {equals: {left: locked, right: locked}}, fuel_level: 15.0, engine: running}]
"""

DOMAINS = [(Bank, BANK), (Payments, PAYMENTS), (Cars, CAR)]


def altered_traces(scenario: Scenario, registry: ToolRegistry) -> Iterator[tuple[TurnTrace, ...]]:
    """Yield golds with the last call left out, and with one number or list of a call altered."""
    gold = reference_trajectory(scenario, registry)
    yield (*gold[:-1], TurnTrace(reply="OK."))
    for t, turn in enumerate(gold):
        for m, (made,) in enumerate(turn.messages):
            for name, value in made.args.items():
                if isinstance(value, str):
                    continue
                other = value + 1 if isinstance(value, int | float) else ["left"]
                call = ToolCall(name=made.name, args={**made.args, name: other})
                messages = (*turn.messages[:m], (call,), *turn.messages[m + 1 :])
                altered = TurnTrace(messages=messages, reply="OK.")
                yield (*gold[:t], altered, *gold[t + 1 :])


@pytest.mark.longer
@pytest.mark.parametrize(("domain", "text"), DOMAINS)
async def test_mutating_toolset_passes_every_repeat_and_changes_no_scenario(
    play: Play, load: Load, domain: Callable[[], Toolset], text: str
) -> None:
    scenarios, toolset = load(text), domain()
    (scenario,) = as_written = deepcopy(scenarios)
    for concurrency in (1, 8):
        run = await play(scenarios, toolset=toolset, repeats=3, concurrency=concurrency)
        assert [record.score.reasons for record in run.records] == [()] * 3
        assert {record.score.verdict for record in run.records} == {Verdict.PASS}
        first = run.records[0].trajectory
        assert {each.trajectory.initial_state == first.initial_state for each in run.records} == {
            True
        }
        assert {each.trajectory.final_state == first.final_state for each in run.records} == {True}
    await scenario_remarks(scenario, toolset)
    assert (await mutate(scenarios, toolset)).outcomes
    again = rescore(run, scenarios, toolset)
    assert [record.score.verdict for record in again.records] == [Verdict.PASS] * 3
    stress = await play(scenarios, gold_model, toolset=toolset, stress="shuffle")
    assert stress.records[0].score.verdict is Verdict.PASS
    trace = reference_trajectory(scenario, registry_of(toolset, scenario.world, "en"))
    before = deepcopy(trace)
    await run_sample(scenario, trace_model(trace, name="gold"), toolset)
    assert trace == before
    assert scenarios == as_written


@pytest.mark.parametrize(("domain", "text"), DOMAINS)
async def test_altered_reference_calls_fail_by_final_state(
    load: Load, domain: Callable[[], Toolset], text: str
) -> None:
    (scenario,) = load(text)
    toolset = domain()
    registry = registry_of(toolset, scenario.world, "en")
    for trace in altered_traces(scenario, registry):
        record = await run_sample(scenario, trace_model(trace, name="altered"), toolset)
        assert record.score.verdict is Verdict.FAIL
        assert record.score.state_equal is False


@dataclass
class Item:
    id: str


class Odd:
    """A session whose state the test gives."""

    registry = tools(("look", lambda _args, _deps: ToolOk({}), {}), reads=["look"])

    def __init__(self, seen: Callable[[], Any], keys: Any = None) -> None:
        self.seen, self.keys = seen, keys or {}

    def open(self, _world: Any, _locale: str) -> Session:
        return Session(registry=self.registry, deps=None, seen=self.seen, keys=self.keys)


HOLDS_ITSELF: dict[str, Any] = {"id": 1}
HOLDS_ITSELF["parents"] = [HOLDS_ITSELF, HOLDS_ITSELF]

LOOK = """
- id: look
  ac: read
  turns: [{user: look, expect: {calls: [{tool: look}]}}]
"""


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"items": [{"id": 1}, {"id": 2, "price": Decimal("1.5")}]}, "items[1].price is a Decimal"),
        ({"items": [Item("a")]}, "items[0] is an Item"),
        ({"items": [{"orders": {5: "x"}}]}, "items[0].orders has the key 5 (an int)"),
        ({"items": [{"n": [1, float("nan")]}]}, "items[0].n[1] is a float (nan)"),
        ({"items": [HOLDS_ITSELF]}, "or contains itself"),
        ({"users": {"u1": {"name": "Kim"}}}, "the table 'users' is a dict: give a list of rows"),
        ({"items": ["a"]}, "items[0] is a str: give an object"),
        ([{"id": 1}], "state() is a list"),
    ],
)
async def test_replay_refuses_state_that_is_not_json(
    play: Play, load: Load, state: Any, words: str
) -> None:
    asked: list[str] = []

    def model(scenario: Scenario, registry: ToolRegistry) -> ChatModel:
        asked.append(scenario.id)
        return gold_model(scenario, registry)

    with pytest.raises(ScenarioError) as caught:
        await play(load(LOOK), model, toolset=Odd(lambda: state))
    assert words in str(caught.value)
    assert str(caught.value).startswith("look.state()")
    assert "\n" not in str(caught.value)
    assert asked == []


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"items": ["nid"]}, "items[0] has no field 'nid'"),
        ({"items": "kind"}, "items[0] and items[1] have the same kind"),
        ({"items": []}, "items[0] and items[1] have the same empty key"),
    ],
)
async def test_replay_refuses_row_keys_that_do_not_identify_rows(
    play: Play, load: Load, keys: Any, words: str
) -> None:
    rows = [{"id": 1, "kind": "x"}, {"id": 2, "kind": "x"}]
    with pytest.raises(ScenarioError) as caught:
        await play(load(LOOK), toolset=Odd(lambda: {"items": rows}, keys))
    assert words in str(caught.value)


async def test_final_state_that_is_not_json_makes_sample_invalid(play: Play, load: Load) -> None:
    price: Any = 1

    def seen() -> Any:
        return {"items": [{"id": "a", "price": price}]}

    class Changing(Odd):
        def look(self, _args: Any, _deps: Any) -> ToolResult:
            nonlocal price
            price = Decimal(2)
            return ToolOk({})

        def open(self, world: Any, locale: str) -> Session:
            session = super().open(world, locale)
            session.registry = tools(("look", self.look, {}), reads=["look"])
            return session

    run = await play(load(LOOK), toolset=Changing(seen))
    (record,) = run.records
    assert record.score.verdict is Verdict.INVALID
    assert record.trajectory.error is not None
    assert record.trajectory.error.startswith("state(): items[0].price is a Decimal")
    assert "\n" not in record.trajectory.error


async def test_replay_refuses_world_that_is_not_json(play: Play, load: Load) -> None:
    (scenario,) = load(LOOK)
    worldly = Scenario(
        id="w", ac="read", turns=scenario.turns, world={"items": [{"price": Decimal(1)}]}
    )
    with pytest.raises(ScenarioError, match=r"w\.world: items\[0\]\.price is a Decimal"):
        await play([worldly], toolset=Odd(dict))
