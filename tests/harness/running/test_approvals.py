"""A run under a policy of approvals: what it lets through, and what it does not apply to."""

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.chat.assistant import Assistant
from lhkit.chat.truth import truth_lines
from lhkit.confirm.decision import Approve, Reject
from lhkit.confirm.gate import ConfirmRequest, DenyGate
from lhkit.confirm.policy import ApprovalPolicy, Measured, PolicyGate, ToolRule
from lhkit.conversation.responses import ModelIdentity, Sampling
from lhkit.harness.authoring.from_chat import confirm_answer
from lhkit.harness.exports.inspect_log import write_inspect
from lhkit.harness.exports.openai_messages import write_openai_messages
from lhkit.harness.exports.otel import trace_lines
from lhkit.harness.records.manifest import Manifest, manifest_changes
from lhkit.harness.records.transcript import transcript
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.terminal import run_view, summary_view
from lhkit.harness.results.results import Run
from lhkit.harness.running.measured import measured_by_locale, measured_in_front
from lhkit.harness.running.plan import plan_run
from lhkit.harness.running.rescore import rescore
from lhkit.harness.running.suite import expand_arms, load_suite
from lhkit.harness.views.sample import Sample
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from tests.harness.build import Load, PlainSession, Play, printed
from tests.harness.conftest import REGISTRY, NotesToolset

pytestmark = pytest.mark.anyio

SCENARIOS = """
- id: add
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00", notes: [{id: note-0, text: old}]}
  turns:
    - user: add milk, and finish the old one
      confirm: CONFIRM
      expect:
        calls:
          - {tool: add_note, args: {text: milk}}
          - {tool: finish_note, args: {note_id: note-0, done: true}}
  final: {notes: [{text: milk}, {id: note-0, done: true}]}
  allow: {notes: [{id: note-0}]}
"""
MILK, EGGS = call("add_note", text="milk"), call("add_note", text="eggs")
OLD = call("finish_note", note_id="note-0", done=True)
IDENTITY = ModelIdentity(model="tiny", server="vllm 1", dialect="json", weights_sha256="ab12")


def scenarios(load: Load, confirm: str = "accept") -> Any:
    text = SCENARIOS.replace("  allow: {notes: [{id: note-0}]}\n", "")
    return load(text.replace("CONFIRM", confirm))


def model(*answers: Any, identity: ModelIdentity | None = None) -> ScriptedModel:
    more = {} if identity is None else {"identity": identity}
    return ScriptedModel([*answers, say("done")], **more)


def policy_for(measured: dict[str, Measured], **rules: str) -> ApprovalPolicy:
    return ApprovalPolicy(
        risk=0.02,
        confidence=0.95,
        runs=("runs/x",),
        measured=measured,
        tools={
            name: ToolRule(rule=rule, proposed=200, wrong=0, scenarios=200, upper=0.015)
            for name, rule in rules.items()
        },
    )


async def policy_of(play: Play, chosen: Any, **rules: str) -> ApprovalPolicy:
    """Return a policy measured with the model of `model()`."""
    run = await play(chosen, model(MILK, OLD))
    return policy_for(measured_by_locale(run.manifest), **rules)


def gates(run: Run) -> list[str]:
    return [str(call.gate) for record in run.records for call in record.trajectory.calls]


async def test_run_asks_only_about_what_the_policy_does_not_let_run(play: Play, load: Load) -> None:
    chosen = scenarios(load)
    policy = await policy_of(play, chosen, add_note="run", finish_note="ask")
    run = await play(chosen, model(MILK, OLD), approvals=policy)
    assert gates(run) == ["policy", "accepted"]
    (record,) = run.records
    assert record.is_passed, record.score.reasons
    first, second = record.trajectory.calls
    assert (first.answer, first.summary, first.ran) == ("policy", "", True)
    assert (second.answer, bool(second.summary)) == ("", True)
    assert run.summary().confirm.policy == 1
    assert run.summary().confirm.policy_wrong == 0
    assert run.summary().confirm.asked == 1
    assert run.summary().total.escaped == {}


async def test_run_without_a_policy_has_the_hashes_and_the_manifest_of_before(
    play: Play, load: Load
) -> None:
    chosen = scenarios(load)
    plain = await play(chosen, model(MILK, OLD))
    assert "approvals" not in plain.manifest.plain()
    assert "several_prompts" not in plain.manifest.plain()
    hashes = {record.content_hash for record in plain.records}
    for rules in ({"add_note": "run"}, {"add_note": "ask"}):
        policy = await policy_of(play, chosen, **rules)
        run = await play(chosen, model(MILK, OLD), approvals=policy)
        before, hashes = hashes, hashes | {record.content_hash for record in run.records}
        assert len(hashes) == len(before) + 1
        (change,) = manifest_changes(plain.manifest, run.manifest)
        assert (change.what, change.before) == ("approvals", "-")


async def test_run_is_resumed_only_under_the_same_policy(
    play: Play, load: Load, tmp_path: Path
) -> None:
    chosen = scenarios(load)
    policy = await policy_of(play, chosen, add_note="run")
    file = tmp_path / "approvals.toml"
    policy.write(file)
    other = policy.model_copy(update={"risk": 0.03})
    kept = []
    for approvals in (file, policy, str(file), other, None):
        run = await play(chosen, model(MILK, OLD), run_dir=tmp_path / "run", approvals=approvals)
        kept.append(run.kept)
    assert kept == [0, 1, 1, 0, 0]


@pytest.mark.parametrize(("progress", "lines"), [(True, 1), (False, 0)])
async def test_replay_says_at_the_start_what_runs_unasked(
    play: Play, load: Load, capsys: pytest.CaptureFixture[str], progress: bool, lines: int
) -> None:
    chosen = scenarios(load)
    policy = await policy_of(play, chosen, add_note="run")
    run = await play(chosen, model(MILK, OLD), approvals=policy, progress=progress)
    line = "The policy of approvals: these run without asking, at a risk of at most 2%: add_note"
    assert capsys.readouterr().out.count(line) == lines
    assert line in run.manifest.invocations[-1].remarks


async def test_scenario_from_a_call_that_ran_by_policy_accepts_it(play: Play, load: Load) -> None:
    chosen = scenarios(load)
    policy = await policy_of(play, chosen, add_note="run")
    (record,) = (await play(chosen, model(MILK, OLD), approvals=policy)).records
    answers = [confirm_answer(each.to_message()) for each in record.trajectory.calls]
    assert answers == ["accept", "accept"]
    (first, _), english = record.trajectory.calls, load_catalog("en")
    assert [line.text for line in truth_lines([first.to_message()], english)] == [
        'Ran without asking: add_note · "milk" (notes +1 · note-1)'
    ]


@pytest.mark.parametrize("approvals", [{}, 3, True, ["a.toml"]])
async def test_replay_refuses_what_is_no_policy(play: Play, load: Load, approvals: Any) -> None:
    with pytest.raises(UsageError, match="approvals="):
        await play(scenarios(load), model(MILK, OLD), approvals=approvals)


async def test_wrong_write_by_policy_is_an_occurred_violation_in_every_view(
    play: Play, load: Load
) -> None:
    chosen = scenarios(load)
    policy = await policy_of(play, chosen, add_note="run")
    run = await play(chosen, model(EGGS, OLD), approvals=policy)
    (record,) = run.records
    assert not record.is_passed
    assert run.summary().total.escaped["wrong_policy_write"] == 1
    assert "unconfirmed_write" not in run.summary().total.escaped
    confirm = run.summary().confirm
    assert (confirm.policy, confirm.policy_wrong, confirm.unconfirmed) == (1, 1, 0)
    assert confirm.unexpected == 0  # of the writes that were asked about
    for locale, words in (
        ("en", "without asking: 1; of them wrong, let through by the policy: 1/1"),
        ("ko", "정책으로 확인 없이 실행 1; 그중 잘못 통과시킨 쓰기 1/1"),
    ):
        catalog = load_catalog(locale)
        summary = run.summary()
        assert words in printed(run_view(run, catalog, details=False), width=200)
        assert words in printed(summary_view(summary, catalog, criteria={}), width=200)
    english = load_catalog("en")
    assert "let through by the policy" in markdown(run, english, name="x")
    page = run._repr_html_()
    assert "let through by the policy: 1/1" in page
    assert "ran without asking, by the policy" in page
    shown = transcript(record, english, max_chars=10_000)
    assert "add_note" in shown
    assert "[policy]" in shown
    assert "Ran without asking: add_note" in shown
    first, _ = Sample.of(record).calls
    assert (first.decision, first.shown, first.run) == ("policy", None, {"text": "eggs"})


async def test_exports_have_the_outcome_of_the_policy(
    play: Play, load: Load, tmp_path: Path
) -> None:
    chosen = scenarios(load)
    policy = await policy_of(play, chosen, add_note="run")
    run = await play(chosen, model(MILK, OLD), approvals=policy)
    plain = await play(chosen, model(MILK, OLD))
    spans = [span for line in trace_lines(run) for span in spans_of(json.loads(line))]
    gates_of_spans = [
        (span["name"], value["stringValue"])
        for span in spans
        for key, value in attributes(span)
        if key == "lhkit.confirm.gate"
    ]
    assert gates_of_spans == [
        ("execute_tool add_note", "policy"),
        ("confirm finish_note", "accepted"),
    ]
    for each, name in ((run, "a.jsonl"), (plain, "b.jsonl")):
        write_openai_messages(each, tmp_path / name)
    read = [(tmp_path / name).read_text(encoding="utf-8") for name in ("a.jsonl", "b.jsonl")]
    assert messages(read[0]) == messages(read[1])  # the model reads the same
    write_inspect(run, tmp_path / "run.eval")
    with zipfile.ZipFile(tmp_path / "run.eval") as log:
        (name,) = [name for name in log.namelist() if name.startswith("samples/")]
        sample = json.loads(log.read(name))
    events = [
        (event["approver"], event["decision"])
        for event in sample["events"]
        if event["event"] == "approval"
    ]
    assert events == [("policy", "approve"), ("user", "approve")]


def messages(text: str) -> Any:
    return json.loads(text.splitlines()[0])["messages"]


def spans_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        span
        for resource in trace["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def attributes(span: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(each["key"], each["value"]) for each in span["attributes"]]


async def test_scripted_answer_belongs_to_its_question_though_one_before_is_not_asked(
    play: Play, load: Load
) -> None:
    chosen = scenarios(load, "[accept, reject]")
    policy = await policy_of(play, chosen, add_note="run", finish_note="ask")
    run = await play(chosen, model(MILK, OLD), approvals=policy)
    assert gates(run) == ["policy", "rejected"]
    assert [record.score.verdict for record in rescore(run, chosen, NotesToolset()).records] == [
        record.score.verdict for record in run.records
    ]


async def test_careful_user_accepts_once_what_already_ran_by_policy(play: Play, load: Load) -> None:
    chosen = scenarios(load, "careful")
    policy = await policy_of(play, chosen, add_note="run")
    again = call("add_note", text="milk", tag="home")
    run = await play(chosen, model(MILK, OLD, again), approvals=policy)
    assert gates(run) == ["policy", "accepted", "policy"]
    (record,) = run.records
    codes = [violation.code for violation in record.score.violations]
    assert codes == ["wrong_policy_write", "unlisted_write"]


async def test_policy_is_suspended_after_a_rejection_in_an_earlier_turn(
    play: Play, load: Load
) -> None:
    text = """
- id: two
  locale: en
  world: {notes: [{id: note-0, text: old}]}
  turns:
    - user: finish the old one
      confirm: reject
      expect: {calls: [{tool: finish_note, args: {note_id: note-0, done: true}, result: cancelled}]}
    - user: add milk
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}}]}
  final: {notes: [{text: milk}]}
"""
    chosen = load(text)
    policy = await policy_of(play, chosen, add_note="run", finish_note="ask")
    run = await play(chosen, model(OLD, say("not done"), MILK), approvals=policy)
    assert gates(run) == ["rejected", "accepted"]


async def test_write_that_the_user_would_reject_is_wrong_by_policy(play: Play, load: Load) -> None:
    chosen = load("""
- id: no
  locale: en
  world: {notes: []}
  turns:
    - user: add milk
      confirm: reject
      expect: {calls: [{tool: add_note, args: {text: milk}, result: cancelled}]}
""")
    policy = await policy_of(play, chosen, add_note="run")
    run = await play(chosen, model(MILK), approvals=policy)
    assert gates(run) == ["policy"]
    assert run.summary().confirm.policy_wrong == 1


async def test_right_call_with_an_unlisted_row_is_wrong_by_policy(play: Play, load: Load) -> None:
    chosen = load("""
- id: row
  locale: en
  world: {notes: []}
  turns: [{user: add milk, expect: {calls: [{tool: add_note, args: {text: milk}}]}}]
""")
    policy = await policy_of(play, chosen, add_note="run")
    run = await play(chosen, model(MILK), approvals=policy)
    codes = sorted(v.code for record in run.records for v in record.score.violations)
    assert codes == ["unlisted_write", "wrong_policy_write"]


async def test_absent_gate_stays_absent_under_a_policy(play: Play, load: Load) -> None:
    chosen = scenarios(load, "absent")
    policy = await policy_of(play, chosen, add_note="run")
    assert gates(await play(chosen, model(MILK), approvals=policy)) == ["absent"]


async def test_tool_that_always_asks_is_asked_whatever_the_policy_says(
    play: Play, load: Load
) -> None:
    chosen = scenarios(load)
    policy = await policy_of(play, chosen, add_note="run")
    registry = REGISTRY.mapped(lambda tool: replace(tool, always_ask=tool.name == "add_note"))
    always = NotesToolset(registry=registry)
    runs = [
        await play(chosen, model(MILK, OLD), approvals=policy, toolset=each)
        for each in (NotesToolset(), always)
    ]
    assert [gates(run)[0] for run in runs] == ["policy", "accepted"]
    first, second = ({record.content_hash for record in run.records} for run in runs)
    assert first != second  # else a record of the one would count for the other
    specs = runs[1].manifest.locales["en"].tools
    assert [tool["name"] for tool in specs if tool.get("always_ask")] == ["add_note"]


async def test_suite_gives_its_arms_a_policy_beside_it(
    play: Play, load: Load, tmp_path: Path
) -> None:
    policy = await policy_of(play, scenarios(load), add_note="run")
    policy.write(tmp_path / "a.toml")
    (tmp_path / "suite.toml").write_text('model = "gold"\napprovals = "a.toml"\n', encoding="utf-8")
    (arm,) = expand_arms(load_suite(tmp_path / "suite.toml"), tmp_path)
    assert arm.options.approvals == tmp_path / "a.toml"


SEVERAL = {
    "models": ({"models": [{"model": "a"}, {"model": "b"}]}, "several models"),
    "temperatures": ({"sampling": [{"temperature": 0}, {"temperature": 1}]}, "temperatures"),
    "prompts": ({"several_prompts": True}, "several prompts"),
    "tools": ({"tools": {"add": ["add_note"]}}, "several sets of tools"),
    "nothing": ({"models": []}, "does not say what was measured"),
    "no prompts": ({"locales": {}}, "does not say what was measured"),
}


@pytest.mark.parametrize(("changes", "message"), SEVERAL.values(), ids=SEVERAL)
async def test_run_of_several_models_prompts_or_tools_has_no_measurement(
    play: Play, load: Load, changes: dict[str, Any], message: str
) -> None:
    run = await play(scenarios(load), model(MILK, OLD))
    with pytest.raises(UsageError, match=message):
        measured_by_locale(run.manifest.model_copy(update=changes))
    same = {"models": [{**run.manifest.models[0], "base_url": url} for url in ("a", "b")]}
    assert measured_by_locale(run.manifest.model_copy(update=same))


def test_plan_says_that_scenarios_have_several_prompts(load: Load) -> None:
    class Personal(NotesToolset):
        def open(self, world: Any, locale: str) -> Any:
            session = super().open(world, locale)
            text = str(world.get("now", ""))
            return PlainSession(
                registry=session.registry, seen=session.seen, deps=session.deps, instructions=text
            )

    text = SCENARIOS.replace("  allow: {notes: [{id: note-0}]}\n", "").replace("CONFIRM", "accept")
    other = text.replace("id: add\n", "id: other\n").replace("09:00:00", "10:00:00")
    chosen = load(text + other)
    plans = [plan_run(chosen, model(), each, repeats=1) for each in (Personal(), NotesToolset())]
    assert [plan.manifest.plain().get("several_prompts") for plan in plans] == [True, None]


# -- one letter ---------------------------------------------------------------------------------

WORLD = {"now": "2026-06-15T09:00:00+09:00"}


def manifest(tools: NotesToolset, load_text: Load) -> Manifest:
    plan = plan_run(load_text(ONE), model(identity=IDENTITY), tools, repeats=1)
    return Manifest.model_validate_json(json.dumps(plan.manifest.plain()))


ONE = "[{id: a, locale: en, turns: [{user: hello, expect: {calls: []}}]}]"


def front(
    identity: ModelIdentity, assistant: Assistant, tools: Sequence[ToolDefinition]
) -> Measured:
    session = ChosenSession(registry=ToolRegistry(tools), seen=dict, chosen=assistant)
    return measured_in_front(identity, NotesToolset(), lambda: (session, "en"))()


@dataclass(kw_only=True)
class ChosenSession(PlainSession):
    chosen: Assistant

    @property
    def assistant(self) -> Assistant:
        return self.chosen


def one_letter(text: str, at: int, letter: str) -> str:
    """Return a text with one letter replaced, added or removed."""
    at %= len(text) + 1
    changed = text[:at] + letter + text[at + 1 :]
    return changed if changed != text else text + letter


LETTERS = st.sampled_from("abcxyz가나 .1")
ASSISTANT = Assistant(instructions="Keep notes.")


Parts = tuple[ModelIdentity, Assistant, list[ToolDefinition]]
Mutation = Callable[[int, str], Parts]


def of_identity(name: str) -> Mutation:
    return lambda at, letter: (
        replace(IDENTITY, **{name: one_letter(getattr(IDENTITY, name), at, letter)}),
        ASSISTANT,
        [*REGISTRY.definitions],
    )


def of_assistant(change: Callable[[int, str], dict[str, Any]]) -> Mutation:
    return lambda at, letter: (
        IDENTITY,
        replace(ASSISTANT, **change(at, letter)),
        [*REGISTRY.definitions],
    )


def of_tool(change: Callable[[ToolDefinition, int, str], dict[str, Any]]) -> Mutation:
    def mutated(at: int, letter: str) -> Parts:
        tools = [*REGISTRY.definitions]
        index = at % len(tools)
        tools[index] = replace(tools[index], **change(tools[index], at, letter))
        return IDENTITY, ASSISTANT, tools

    return mutated


def described(tool: ToolDefinition, at: int, letter: str) -> dict[str, Any]:
    """Return a schema in which one parameter has another description."""
    properties = {**tool.parameters["properties"]}
    name = [*properties][at % len(properties)]
    properties[name] = {**properties[name], "description": letter + str(at)}
    return {"parameters": {**tool.parameters, "properties": properties}}


def with_parameter(tool: ToolDefinition, at: int, letter: str) -> dict[str, Any]:
    properties = {**tool.parameters["properties"], f"{letter}{at}": {"type": "string"}}
    return {"parameters": {**tool.parameters, "properties": properties}}


def other_dialect(at: int, _letter: str) -> Parts:
    names = ["pythonic", "openai", "functiongemma", "gemma4"]
    return replace(IDENTITY, dialect=names[at % 4]), ASSISTANT, [*REGISTRY.definitions]


def other_constraint(at: int, _letter: str) -> Parts:
    changed = replace(IDENTITY, constraint=("auto", "required")[at % 2])
    return changed, ASSISTANT, [*REGISTRY.definitions]


def other_order(_at: int, _letter: str) -> Parts:
    first, *others = REGISTRY.definitions
    return IDENTITY, ASSISTANT, [*others, first]


def one_tool_less(at: int, _letter: str) -> Parts:
    tools = [*REGISTRY.definitions]
    del tools[at % len(tools)]
    return IDENTITY, ASSISTANT, tools


MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "model": (
        *map(of_identity, ("model", "server", "weights_sha256", "dtype", "stress")),
        of_assistant(lambda at, _: {"sampling": Sampling(temperature=0.1 + at)}),
    ),
    "prompt": (
        of_assistant(lambda at, x: {"instructions": one_letter("Keep notes.", at, x)}),
        of_assistant(lambda _, x: {"truncation_hint": x}),
        of_assistant(lambda at, _: {"max_turns": 5 + at}),
    ),
    "tools": (
        of_tool(lambda tool, _, __: {"name": f"{tool.name}x"}),
        of_tool(lambda tool, at, x: {"description": one_letter(tool.description, at, x) + "."}),
        of_tool(described),
        of_tool(with_parameter),
        other_order,
        one_tool_less,
    ),
    "dialect": (other_dialect, of_identity("template_sha256")),
    "constraint": (other_constraint,),
}
CHANGES = [(part, mutate) for part, each in MUTATIONS.items() for mutate in each]


@pytest.mark.longer
@given(st.sampled_from(CHANGES), st.integers(0, 400), LETTERS)
async def test_policy_does_not_apply_if_one_letter_differs(
    change: tuple[str, Mutation], at: int, letter: str
) -> None:
    part, mutate = change
    measured = front(IDENTITY, ASSISTANT, REGISTRY.definitions)
    policy = policy_for({"en": measured}, add_note="run", find_notes="run", finish_note="run")
    tool = REGISTRY["add_note"]
    declared = {"description": tool.description, "parameters": tool.parameters}
    request = ConfirmRequest(tool=tool.name, args={}, summary="", **declared)
    same = await PolicyGate(policy, DenyGate(), measured).confirm(request)
    assert isinstance(same, Approve)
    changed = front(*mutate(at, letter))
    assert part in measured.differences(changed)
    decision = await PolicyGate(policy, DenyGate(), changed).confirm(request)
    assert isinstance(decision, Reject)


def test_measured_of_a_manifest_is_what_is_in_front(load: Load) -> None:
    tools = NotesToolset()
    stored = manifest(tools, load)
    found = measured_by_locale(stored)
    assert found == {"en": front(IDENTITY, ASSISTANT, REGISTRY.definitions)}
    moved = replace(IDENTITY, base_url="http://other", weights="a new name of the same weights")
    assert found["en"].differences(front(moved, ASSISTANT, REGISTRY.definitions)) == ()
    shorter = replace(ASSISTANT, sampling=Sampling(max_tokens=64, seed=3))
    assert found["en"].differences(front(IDENTITY, shorter, REGISTRY.definitions)) == ()


def test_policy_gate_sees_tools_that_are_registered_later() -> None:
    registry = ToolRegistry(REGISTRY.definitions)
    session = PlainSession(registry=registry, seen=dict, instructions="Keep notes.")
    now = measured_in_front(IDENTITY, NotesToolset(), lambda: (session, "en"))
    before = now()
    assert now() is before
    registry.register(replace(REGISTRY["find_notes"], name="more"))
    assert before.differences(now()) == ("tools",)
    assert before.other_tools(now()) == ("more",)
