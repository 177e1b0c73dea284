"""The tau2-bench import, with a made-up checkout: tasks are scored as tau2 scores them."""

import json
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import UsageError
from lhkit.cli.imports import import_with
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.run import replay
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.imports.tau2 import import_tau2
from lhkit.models.recorded.scripted import Reply, ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import load

pytestmark = pytest.mark.anyio

ENVIRONMENT = '''\
"""The names of tau2 that the importer uses, over two seats and a phone."""

import json
from pathlib import Path
from types import SimpleNamespace

from pydantic import BaseModel

from tau2.data_model.message import ToolMessage

TASKS = json.loads((Path(__file__).parents[2] / "tasks.json").read_text(encoding="utf-8"))


class Data(BaseModel):
    seats: dict[str, dict] = {}
    log: list[dict] = []


class Phone(BaseModel):
    device: dict[str, bool]


class Tool:
    def __init__(self, function):
        names = [name for name in function.__annotations__ if name != "return"]
        parameters = {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": names,
        }
        name = function.__name__
        function = {"name": name, "description": name, "parameters": parameters}
        self.openai_schema = {"type": "function", "function": function}


class Kit:
    def __init__(self, db, *names):
        self.db, self.names = db, names

    def get_tools(self):
        return {name: Tool(getattr(self, name)) for name in self.names}

    def tool_mutates_state(self, name):
        return not name.startswith("get")

    def get_seat(self, seat_id: str):
        return self.db.seats[seat_id]

    def give_seat(self, seat_id: str, owner: str):
        self.db.seats[seat_id]["owner"] = owner
        return "Given."

    def toggle_radio(self):
        self.db.device["radio"] = not self.db.device["radio"]
        return "Toggled."

    def break_radio(self):
        self.db.device["radio"] = False

    def radio_works(self):
        return self.db.device["radio"]


class Environment:
    def __init__(self, tools, user_tools, solo_mode):
        self.tools, self.user_tools, self.solo_mode = tools, user_tools, solo_mode

    def get_policy(self):
        return "You sell seats."

    def set_state(self, initialization_data, initialization_actions, message_history):
        for action in initialization_actions or ():
            getattr(self.user_tools, action.func_name)(**action.arguments)

    def run_env_assertion(self, assertion, raise_assertion_error=True):
        return getattr(self.user_tools, assertion.func_name)(**assertion.arguments)

    def get_response(self, call):
        kits = [self.tools, self.user_tools] if self.solo_mode else [self.tools]
        kit = next(kit for kit in kits if kit and call.name in kit.names)
        try:
            result = getattr(kit, call.name)(**call.arguments)
        except Exception as error:
            return ToolMessage(f"Error: {error}", True)
        return ToolMessage(result if isinstance(result, str) else json.dumps(result), False)


def named(value):
    if isinstance(value, dict) and "reward_basis" in value:
        basis = [SimpleNamespace(value=kind) for kind in value["reward_basis"]]
        value = {**value, "reward_basis": basis}
    if isinstance(value, dict):
        keep = {"arguments"}
        return SimpleNamespace(**{k: v if k in keep else named(v) for k, v in value.items()})
    return [named(item) for item in value] if isinstance(value, list) else value


def create(domain, solo_mode=False):
    seats = {"s1": {"owner": "ann", "price": 1000}, "s2": {"owner": "bob", "price": 50}}
    phone = Kit(Phone(device={"radio": True}), "toggle_radio") if domain == "telecom" else None
    return Environment(Kit(Data(seats=seats), "get_seat", "give_seat"), phone, solo_mode)
'''
REGISTRY = """\
from functools import partial

from tau2.environment import TASKS, create, named


class registry:
    @staticmethod
    def get_env_constructor(domain):
        return partial(create, domain)

    @staticmethod
    def get_tasks_loader(domain):
        return lambda split: [named(task) for task in TASKS[domain]]

    @staticmethod
    def get_task_splits_loader(domain):
        ids = [task["id"] for task in TASKS[domain]]
        return lambda: {"base": ids} if domain == "telecom" else {"base": ids, "test": ids[:1]}
"""
MESSAGE = """\
from collections import namedtuple

ToolCall = namedtuple("ToolCall", "name arguments")
ToolMessage = namedtuple("ToolMessage", "content error")
"""


def task(name: str, says: str, *actions: Any, **criteria: Any) -> dict[str, Any]:
    return {
        "id": name,
        "user_scenario": {"instructions": says},
        "ticket": f"Ticket: {says}",
        "initial_state": criteria.pop("initial_state", None),
        "evaluation_criteria": {
            "actions": [
                {"name": tool, "arguments": args, "compare_args": None} for tool, args in actions
            ],
            "env_assertions": None,
            "communicate_info": None,
            "nl_assertions": None,
            **criteria,
        },
    }


GIVE_S1 = ("give_seat", {"seat_id": "s1", "owner": "bob"})
BROKEN = {
    "initialization_data": None,
    "initialization_actions": [{"func_name": "break_radio", "arguments": {}}],
}
WORKS = [{"func_name": "radio_works", "arguments": {}}]
TASKS = {
    "airline": [
        task(
            "0",
            "You are ann. Give seat s1 to bob.",
            ("get_seat", {"seat_id": "s1"}),
            GIVE_S1,
            communicate_info=["1000"],
            reward_basis=["DB", "COMMUNICATE"],
        ),
        task(
            "1",
            "Ask who owns seat s1.",
            ("get_seat", {"seat_id": "s9"}),
            communicate_info=["ann"],
            reward_basis=["DB"],
        ),
    ],
    "retail": [
        task(
            "0",
            "Give my seat to bob.",  # whose id no read of the reference returns
            GIVE_S1,
            nl_assertions=["Agent is polite."],
            reward_basis=["DB", "NL_ASSERTION"],
        )
    ],
    "telecom": [
        task(
            "[radio]off[PERSONA:Easy]",
            "The radio is off.",
            ("toggle_radio", {}),
            env_assertions=WORKS,
            initial_state=BROKEN,
            reward_basis=["ENV_ASSERTION"],
        ),
        task(
            "[radio]twice",
            "The radio is off, and s1 is for bob.",
            ("toggle_radio", {}),
            GIVE_S1,
            env_assertions=WORKS,
            initial_state=BROKEN,
            reward_basis=["ENV_ASSERTION", "ACTION"],
        ),
    ],
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "tau2-bench"
    files = {
        "src/tau2/__init__.py": "",
        "src/tau2/environment.py": ENVIRONMENT,
        "src/tau2/registry.py": REGISTRY,
        "src/tau2/data_model/__init__.py": "",
        "src/tau2/data_model/message.py": MESSAGE,
        "tasks.json": json.dumps(TASKS),
    }
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
async def into(checkout: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert await import_with("tau2", load_settings(), path=checkout, into=folder) == 0
    return folder


def scenarios_in(folder: Path) -> dict[str, Scenario]:
    return {scenario.id: scenario for scenario in load_scenarios([folder])}


@pytest.mark.longer
async def test_tau2_references_pass_and_notes_name_what_needs_a_model(into: Path) -> None:
    for domain, count in (("airline", 2), ("retail", 1), ("telecom", 2)):
        run = await replay(
            load_scenarios([into / f"{domain}.yaml"]),
            gold_model,
            toolset=f"{into / 'toolset.py'}:{domain}",
            repeats=2,
            concurrency=4,
            progress=False,
        )
        assert [record.score.verdict for record in run.records] == [Verdict.PASS] * count * 2
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    assert "tau2-retail-0: Agent is polite." in notes
    assert 'tau2-airline-1: get_seat {"seat_id":"s9"}: Error: \'s9\'' in notes
    scenarios = scenarios_in(into)
    assert scenarios["tau2-airline-1"].turns[0].gold.calls == ()
    assert scenarios["tau2-retail-0"].tags == ("tau2", "nl_assertion")
    assert scenarios["tau2-telecom-radio_off_persona_easy"].turns[0].user.startswith("Ticket: ")


GIVE, TOGGLE = call("give_seat", seat_id="s1", owner="bob"), call("toggle_radio")
TO_EVE = call("give_seat", seat_id="s1", owner="eve")
CASES: list[tuple[str, tuple[Reply, ...], bool]] = [
    ("airline-0", (GIVE, say("It was 1,000.")), True),  # reads are not scored
    ("airline-0", (GIVE, say("It was 900.")), False),  # the text is not named
    ("airline-0", (say("It was 1000."),), False),  # the write is missing
    ("airline-0", (TO_EVE, say("1000")), False),
    ("airline-0", (TO_EVE, GIVE, say("1000")), True),  # another way to the same data
    ("airline-1", (say("Ask bob."),), True),  # its text is not in the basis
    ("airline-1", (GIVE, say("Given.")), False),
    ("airline-1", (call("give_seat", seat_id="s9", owner="bob"), say("No.")), True),  # no effect
    ("telecom-radio_off_persona_easy", (TOGGLE, say("Done.")), True),
    ("telecom-radio_off_persona_easy", (TOGGLE, GIVE, say("Done.")), True),  # data do not count
    ("telecom-radio_off_persona_easy", (say("Done."),), False),
    ("telecom-radio_twice", (TOGGLE, GIVE, say("Done.")), True),
    ("telecom-radio_twice", (TOGGLE, say("Done.")), False),  # an action is missing
]


@pytest.mark.longer
async def test_tau2_scores_what_the_reward_basis_names(into: Path) -> None:
    scenarios = scenarios_in(into)
    for name, replies, passes in CASES:
        scenario = scenarios[f"tau2-{name}"]
        toolset = load(f"{into / 'toolset.py'}:{scenario.ac}")
        record = await run_sample(scenario, ScriptedModel(replies), toolset)
        verdict = record.score.verdict
        assert (name, replies, verdict is Verdict.PASS) == (name, replies, passes)


async def test_import_tau2_splits(checkout: Path) -> None:
    counts = {
        suite.file: len(suite.scenarios) for suite in import_tau2(checkout, split="test").suites
    }
    assert counts == {"airline": 1, "retail": 1}
    with pytest.raises(UsageError, match="split 'prod': choose one of base, test"):
        import_tau2(checkout, split="prod")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("__init__.py", "import no_such_client\n", r"requires no_such_client: .* `pip install -e"),
        ("environment.py", "\n1 / 0\n", r"importing airline failed at .*environment\.py:2: ZeroD"),
    ],
)
def test_import_tau2_names_what_fails(checkout: Path, file: str, text: str, message: str) -> None:
    (checkout / "src/tau2" / file).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        import_tau2(checkout)
    with pytest.raises(UsageError, match="does not contain tau2-bench: give the folder of its cl"):
        import_tau2(checkout.parent)
