"""`variants`: one request in several wordings, run as one cluster."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import ScenarioError
from lhkit.base.locales import load_catalog
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.authoring.reference import gold_model, silent_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.records.store import RECORDS
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.page import html_page
from lhkit.harness.report.terminal import summary_view
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.harness.running.fingerprint import scenario_hash
from lhkit.harness.running.rescore import rescore
from lhkit.harness.scenarios.loader import read_sources
from lhkit.harness.scenarios.scenario import Scenario
from tests.harness.build import Load, Play, printed

pytestmark = pytest.mark.anyio


NOTES = """
- id: milk
  ac: AC-1
  locale: en
  turns:
    - user: add 2 pints of milk
      variants: ["2 pints of milk, note that", "could you write down milk, 2 pints?"]
      confirm: accept
      expect: {calls: [{tool: add_note, args: {text: milk}, result: ok}]}
    - user: thanks
      reply: {contains_any: [welcome]}
      gold: {say: you are welcome}
  final: {notes: [{text: milk}]}
- id: hello
  ac: AC-2
  locale: en
  turns:
    - user: hello
      reply: {contains_any: [welcome]}
      gold: {say: you are welcome}
"""
ALL = ["milk", "milk#2", "milk~2", "milk~2#2", "milk~3", "milk~3#2", "hello", "hello#2"]


@pytest.fixture
def play(play: Play, tmp_path: Path) -> Play:
    return partial(play, repeats=2, run_dir=tmp_path / "run", variants=True)


def names(run: Run) -> list[str]:
    return [str(record.sample_id) for record in run.records]


def verdicts(run: Run) -> set[Verdict]:
    return {record.score.verdict for record in run.records}


def only(word: str) -> Callable[..., Any]:
    """Return a factory of the reference model, silent where the user does not say `word`."""

    def model(scenario: Scenario, registry: Any) -> Any:
        is_understood = word in scenario.turns[0].user
        return gold_model(scenario, registry) if is_understood else silent_model()

    return model


async def test_variants_are_run_on_request_and_pass_with_the_reference(
    play: Play, load: Load, tmp_path: Path
) -> None:
    scenarios = load(NOTES)
    plain = await play(scenarios, variants=False, run_dir=None)
    assert names(plain) == ["milk", "milk#2", "hello", "hello#2"]
    run = await play(scenarios)
    assert names(run) == ALL
    assert verdicts(run) == {Verdict.PASS}
    assert [run.record("milk", wording=n).trajectory.turns[0].user for n in range(3)] == [
        "add 2 pints of milk",
        "2 pints of milk, note that",
        "could you write down milk, 2 pints?",
    ]
    lines = (tmp_path / "run" / RECORDS).read_text(encoding="utf-8").splitlines()
    ids = [json.loads(line)["sample_id"] for line in lines]
    assert {"scenario": "milk", "repeat": 1, "wording": 2} in ids
    assert [record.content_hash for record in plain.records[:2]] == [
        record.content_hash for record in run.records[:2]
    ]


async def test_variants_do_not_change_the_hash_of_a_scenario(load: Load) -> None:
    without = load(re.sub("variants.*\n", "\n", NOTES))
    assert scenario_hash(without[0]) == scenario_hash(load(NOTES)[0])
    assert len({scenario_hash(wording) for wording in load(NOTES)[0].wordings()}) == 3


@pytest.mark.longer
@pytest.mark.parametrize("stored", [0, 1, 3, 7])
async def test_variants_resume_after_a_kill(
    play: Play, load: Load, tmp_path: Path, stored: int
) -> None:
    scenarios = load(NOTES)
    await play(scenarios)
    file = tmp_path / "run" / RECORDS
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:stored]) + lines[stored][:40])
    again = await play(scenarios)
    assert (again.kept, names(again)) == (stored, ALL)
    assert names(Run.load(tmp_path / "run")) == ALL
    fewer = await play(scenarios, variants=False)
    assert (fewer.kept, len(fewer.records)) == (4, 4)


async def test_rescore_keeps_wordings_and_skips_changed_ones(
    play: Play, load: Load, toolset: Any
) -> None:
    run = await play(load(NOTES))
    assert rescore(run, load(NOTES), toolset).records == run.records
    changed = rescore(run, load(NOTES.replace("could you write", "please write")), toolset)
    assert [str(sample) for sample in changed.skipped] == ["milk~3", "milk~3#2"]


@pytest.mark.longer
async def test_summary_compares_spread_over_wordings_with_repeats(play: Play, load: Load) -> None:
    run = await play(load(NOTES), only("note that"))
    summary = run.summary()
    assert [(each.name, each.passed, each.valid) for each in summary.by_wording] == [
        ("1", 0, 2),
        ("2", 2, 2),
        ("3", 0, 2),
    ]
    wordings = summary.wordings
    assert (wordings.scenarios, wordings.passed_all, wordings.passed_some) == (1, 0, 1)
    assert (wordings.between, wordings.within) == (pytest.approx(2 / 3), 0)
    assert run.scenarios.groupby("wording")["passed"].sum().tolist() == [0, 2, 0]
    catalog = load_catalog("en")
    page = html_page(run, catalog, name="r")
    for text, part in (
        (
            printed(summary_view(summary, catalog, criteria={})),
            "1 scenario in several wordings: passed by wording 0/2 0%",
        ),
        (markdown(run, catalog, name="r"), "differ in verdict 67%, two repeats of one wording 0%"),
        (page, "two wordings differ in verdict"),
        (page, "by wording"),
    ):
        assert part in text


async def test_compare_pairs_wordings_with_themselves(play: Play, load: Load) -> None:
    scenarios = load(NOTES)
    first = await play(scenarios, only("pints of milk, note"), run_dir=None)
    second = await play(scenarios, only("milk"), run_dir=None)
    comparison = compare(first, second)
    improved = [str(pair.sample_id) for pair in comparison.improvements]
    assert improved == ["milk", "milk#2", "milk~3", "milk~3#2"]
    plain = await play(scenarios, run_dir=None, variants=False)
    assert len(compare(first, plain).only_a) == 4


@pytest.mark.longer
async def test_mutate_takes_the_first_wording(load: Load, toolset: Any) -> None:
    report = await mutate(load(NOTES), toolset)
    without = await mutate(load(re.sub("variants.*\n", "\n", NOTES)), toolset)
    assert report.total == without.total


LINT = {
    "numbers": ("2 pints of milk, note", "pints of milk, note", "variants[0]: it lacks 2"),
    "language": ("2 pints of milk, note that", "우유 2 적어 줘", "variants[0]: it is not in en"),
}


@pytest.mark.parametrize("case", LINT)
async def test_lint_checks_variants(tmp_path: Path, toolset: Any, case: str) -> None:
    old, new, message = LINT[case]
    (tmp_path / "s.yaml").write_text(NOTES.replace(old, new), encoding="utf-8")
    findings = await lint(read_sources([tmp_path / "s.yaml"]), toolset)
    (finding,) = (str(finding) for finding in findings if finding.code == "variant")
    assert message in finding


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2 pints of milk, note that", "Add 2 pints of  milk", "two wordings have the same text"),
        ("user: thanks", "user: thanks\n      variants: [ta]", "turns[1].variants: has 1"),
    ],
)
def test_scenario_refuses_equal_and_uneven_wordings(
    load: Load, old: str, new: str, message: str
) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        load(NOTES.replace(old, new))
