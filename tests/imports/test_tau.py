"""The tau-bench import, with a made-up checkout: tasks are scored as tau-bench scores them."""

from pathlib import Path

import pytest

from lhkit.cli.imports import import_with
from lhkit.errors import UsageError
from lhkit.harness.author.reference import gold_model
from lhkit.harness.loader import load_scenarios
from lhkit.harness.record import Verdict
from lhkit.harness.run import replay
from lhkit.harness.sample import run_sample
from lhkit.harness.scenario import Scenario
from lhkit.imports.tau import import_tau
from lhkit.models.scripted import Reply, ScriptedModel, call, say
from lhkit.settings import load_settings
from lhkit.toolset import load

pytestmark = pytest.mark.anyio

FILES = {
    "__init__.py": "",
    "envs/__init__.py": "",
    "envs/airline/__init__.py": "",
    "envs/airline/wiki.py": 'WIKI = "You sell seats."\n',
    "envs/airline/data.py": """\
def load_data():
    return {
        "seats": {"s1": {"owner": "ann", "price": 100}, "s2": {"owner": "bob", "price": 50}},
        "notes": {},
    }
""",
    "envs/airline/tools.py": """\
from tau_bench.types import described


class GetSeat:
    @staticmethod
    def invoke(data, seat_id):
        return str(data["seats"][seat_id]["owner"])

    get_info = staticmethod(lambda: described("get_seat", "seat_id"))


class GiveSeat:
    @staticmethod
    def invoke(data, seat_id, owner):
        if seat_id not in data["seats"]:
            return "Error: seat not found"
        data["seats"][seat_id]["owner"] = owner
        return "Given."

    get_info = staticmethod(lambda: described("give_seat", "seat_id", "owner"))


class DropSeat:
    @staticmethod
    def invoke(data, seat_id):
        del data["seats"][seat_id]
        return "Gone."

    get_info = staticmethod(lambda: described("drop_seat", "seat_id"))


ALL_TOOLS = [GetSeat, GiveSeat, DropSeat]
""",
    "types.py": """\
from types import SimpleNamespace as Task


def Action(name, **kwargs):
    return Task(name=name, kwargs=kwargs)


def described(name, *fields):
    parameters = {
        "type": "object",
        "properties": {field: {"type": "string"} for field in fields},
        "required": list(fields),
    }
    function = {"name": name, "description": name, "parameters": parameters}
    return {"type": "function", "function": function}
""",
    "envs/airline/tasks_test.py": """\
from tau_bench.types import Action, Task

TASKS = [
    Task(
        instruction="You are ann. Give seat s1 to bob.",
        actions=[Action("get_seat", seat_id="s1"), Action("give_seat", seat_id="s1", owner="bob")],
        outputs=["1000"],
    ),
    Task(
        instruction="You are bob. Drop seat s2.",
        actions=[Action("drop_seat", seat_id="s2")],
        outputs=[],
    ),
    Task(
        instruction="Ask who owns seat s1.",
        actions=[Action("get_seat", seat_id="s9"), Action("get_seat", seat_id="s1")],
        outputs=["ann"],
    ),
]
""",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "tau"
    for name, text in FILES.items():
        file = folder / "tau_bench" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
async def into(checkout: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    assert await import_with("tau", load_settings(), path=checkout, into=folder) == 0
    return folder


def scenarios_in(folder: Path) -> dict[str, Scenario]:
    return {scenario.id[-3:]: scenario for scenario in load_scenarios([folder / "airline.yaml"])}


async def verdict(folder: Path, number: str, *replies: Reply) -> Verdict:
    scenario = scenarios_in(folder)[number]
    toolset = load(f"{folder / 'toolset.py'}:airline")
    return (await run_sample(scenario, ScriptedModel(replies), toolset)).judgement.verdict


@pytest.mark.promise("imports.tau")
async def test_tau_reference_calls_pass(into: Path) -> None:
    run = await replay(
        list(scenarios_in(into).values()),
        gold_model,
        toolset=f"{into / 'toolset.py'}:airline",
        repeats=2,
        concurrency=4,
        progress=False,
    )
    assert [record.judgement.verdict for record in run.records] == [Verdict.PASS] * 6


@pytest.mark.promise("imports.tau")
async def test_import_tau_accepts_other_splits(checkout: Path, tmp_path: Path) -> None:
    test = checkout / "tau_bench/envs/airline/tasks_test.py"
    test.with_name("tasks_train.py").write_text(
        test.read_text(encoding="utf-8").replace("to bob", "to eve").replace('"bob"', '"eve"'),
        encoding="utf-8",
    )
    counts = {}
    for split in ("test", "train", "all"):
        into, settings = tmp_path / split, load_settings()
        assert await import_with("tau", settings, path=checkout, into=into, split=split) == 0
        counts[split] = {file.stem: len(load_scenarios([file])) for file in into.glob("*.yaml")}
    assert counts["test"] == {"airline": 3}
    assert counts["train"] == {"airline_train": 3}
    assert counts["all"] == {"airline": 3, "airline_train": 3}
    train = load_scenarios([tmp_path / "all/airline_train.yaml"])
    assert (train[0].id, train[0].tags) == ("tau-airline-train-000", ("tau-bench", "train"))
    toolset = f"{tmp_path / 'all/toolset.py'}:airline"
    run = await replay(train, gold_model, toolset=toolset, progress=False)
    assert [record.judgement.verdict for record in run.records] == [Verdict.PASS] * 3


def test_import_tau_refuses_unknown_splits(checkout: Path) -> None:
    with pytest.raises(UsageError, match="split 'prod': choose one of test, dev, train, all"):
        import_tau(checkout, split="prod")
    with pytest.raises(UsageError, match="has no tasks of the split 'dev': use --split test"):
        import_tau(checkout, split="dev")


GIVE = call("give_seat", seat_id="s1", owner="bob")


@pytest.mark.promise("imports.tau")
@pytest.mark.parametrize(
    ("number", "replies", "expected"),
    [
        ("000", (GIVE, say("It was 1,000.")), Verdict.PASS),  # reads are not scored
        ("000", (GIVE, say("It was 900.")), Verdict.FAIL),  # the output is not named
        ("000", (say("It was 1000."),), Verdict.FAIL),  # the write is missing
        ("000", (call("give_seat", seat_id="s1", owner="eve"), say("1000")), Verdict.FAIL),
        (  # another way to the same data
            "000",
            (call("give_seat", seat_id="s1", owner="eve"), GIVE, say("1000")),
            Verdict.PASS,
        ),
        ("001", (call("drop_seat", seat_id="s1"), say("Gone.")), Verdict.FAIL),
        ("001", (call("drop_seat", seat_id="s2"),), Verdict.FAIL),  # silence
        ("002", (say("Ask ann."),), Verdict.PASS),
        (  # a write without effect
            "002",
            (call("give_seat", seat_id="s9", owner="bob"), say("That failed; ask ann.")),
            Verdict.PASS,
        ),
    ],
)
async def test_tau_scores_final_data_and_outputs(
    into: Path, number: str, replies: tuple[Reply, ...], expected: Verdict
) -> None:
    assert await verdict(into, number, *replies) is expected


async def test_import_tau_drops_failing_reference_calls(
    into: Path,
) -> None:
    notes = (into / "NOTES.md").read_text(encoding="utf-8")
    assert 'tau-airline-002: get_seat {"seat_id":"s9"}: Error: \'s9\'' in notes
    calls = scenarios_in(into)["002"].turns[0].gold.calls
    assert calls is not None
    assert [call.args["seat_id"] for call in calls] == ["s1"]


async def test_tau_exceptions_reach_the_model(into: Path) -> None:
    toolset = load(f"{into / 'toolset.py'}:airline")
    model = ScriptedModel([call("get_seat", seat_id="s7"), say("ann")])
    record = await run_sample(scenarios_in(into)["002"], model, toolset)
    result = record.evidence.turns[0].calls[0].result
    assert (result["code"], result["reason"]) == ("error", "Error: 's7'")


def test_import_tau_refuses_another_copy_in_the_same_process(
    checkout: Path, tmp_path: Path
) -> None:
    import_tau(checkout)
    moved = checkout.rename(tmp_path / "other")
    with pytest.raises(UsageError, match="Another copy of tau_bench is imported first"):
        import_tau(moved / "tau_bench")


def test_import_tau_names_a_missing_dependency(checkout: Path) -> None:
    (checkout / "tau_bench/__init__.py").write_text("import no_such_client\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"requires no_such_client: install .* `pip install -e"):
        import_tau(checkout)


def test_import_tau_refuses_a_folder_without_tau_bench(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="does not contain tau-bench: give the folder of its clone"
    ):
        import_tau(tmp_path)


def test_import_tau_names_the_failing_line(checkout: Path) -> None:
    (checkout / "tau_bench/envs/airline/wiki.py").write_text("\n1 / 0\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"importing airline failed at .*wiki\.py:2: ZeroDiv"):
        import_tau(checkout)
