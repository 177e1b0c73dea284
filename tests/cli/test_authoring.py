"""`lint`, `mutate`, `accept` from start to exit code, on files of their own."""

import json
from pathlib import Path

import pytest

from lhkit.base.errors import RunError, UsageError
from lhkit.cli.accept import AcceptOptions, accept_sample
from lhkit.cli.lint import LintOptions, lint_paths
from lhkit.cli.mutate import MutateOptions, mutate_paths
from lhkit.cli.rescore import RescoreOptions, rescore_run
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.lifehelper.toolset import LifeHelperToolset
from lhkit.models.recorded.scripted import ScriptedModel, call, say
from lhkit.settings import Settings

pytestmark = pytest.mark.anyio

SCENARIO = """\
- id: a-ko-01
  ac: AC-1
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: "숨 고르는 법 좀 찾아 줘."
      expect:
        calls:
          - tool: search_catalog
            args: {query: 호흡, limit: 3} # 둘 다 꼭
        extra: reads
      reply: {contains_any: ["네모 호흡"]}
"""
SILENT = SCENARIO.replace('      reply: {contains_any: ["네모 호흡"]}\n', "")
LISTED = """\
[[survivor]]
scenario = "a-ko-01"
reason = "why not"
mistake = ["say_nothing@0", "unrelated_answer@0"]
"""


def put(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    path = tmp_path / "dev" / "some.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


async def test_lint_prints_findings_and_exits_with_1(
    file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await lint_paths(LintOptions(paths=(file,)), settings) == 0
    put(file, SCENARIO.replace("limit: 3", "limit: 30"))
    capsys.readouterr()
    assert await lint_paths(LintOptions(paths=(file,)), settings) == 1
    shown = capsys.readouterr().out
    assert f"{file}:9: error: a-ko-01.turns[0].expect.calls[0].args" in shown
    assert await lint_paths(LintOptions(paths=(file,), as_json=True), settings) == 1
    first = json.loads(capsys.readouterr().out)[0]
    assert (first["line"], first["level"], first["scenario"]) == (9, "error", "a-ko-01")
    put(file.with_name("broken.yaml"), "- id: [")
    assert await lint_paths(LintOptions(paths=(file.parent,)), settings) == 1
    counts = capsys.readouterr().out.splitlines()[-1]
    assert counts == "1 scenario read, 1 file refused: 2 errors, 0 warnings"


@pytest.mark.longer
async def test_mutate_exits_with_1_below_share_or_with_outdated_survivors(
    file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    options = MutateOptions(paths=(file,), fail_under=100)
    assert await mutate_paths(options, settings) == 0
    put(file, SILENT)
    assert await mutate_paths(options, settings) == 1
    assert "say_nothing@0" in capsys.readouterr().out
    known = file.with_name("survivors.toml")
    put(known, LISTED)
    listed = MutateOptions(paths=(file,), survivors=known, as_json=True)
    assert await mutate_paths(listed, settings) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["reason"] for each in report["survivors"]] == ["why not"] * 2
    put(file, SCENARIO)
    assert await mutate_paths(listed, settings) == 1
    assert json.loads(capsys.readouterr().out)["outdated"][0] == ["a-ko-01", "say_nothing@0"]


async def completed_run(file: Path, **options: bool) -> Path:
    answers = [call("search_catalog", query="숨", limit=4), say("네모 호흡이 있어요")]
    await replay(
        load_scenarios([file]),
        lambda *_: ScriptedModel(answers),
        toolset=LifeHelperToolset(),
        run_dir=file.parent / "run",
        progress=False,
        **options,
    )
    return file.parent / "run"


async def test_accept_writes_change_and_rescored_sample_passes(
    file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await completed_run(file)
    with pytest.raises(UsageError, match=r"choose one of\n.*--arg query") as error:
        await accept_sample(AcceptOptions(run=run, sample="a-ko-01", paths=(file,)), settings)
    assert "--turn 0 --call 0 --arg limit" in str(error.value)
    for name, is_dry in (("query", True), ("query", False)):
        options = AcceptOptions(run=run, sample="a-ko-01", paths=(file,), arg=name, is_dry=is_dry)
        assert await accept_sample(options, settings) == 0
        assert '+            args: {query: {one_of: [호흡, "숨"]}, limit: 3} # 둘 다 꼭' in (
            capsys.readouterr().out
        )
        assert (text_of(file) == SCENARIO) is is_dry
    options = AcceptOptions(run=run, sample="a-ko-01", paths=(file,), arg="limit")
    with pytest.raises(UsageError, match="changed since the run: score the run again"):
        await accept_sample(options, settings)
    again = run.with_name("again")
    await rescore_run(RescoreOptions(run=run, paths=(file,), into=again), settings)
    assert await accept_sample(options.model_copy(update={"run": again}), settings) == 0


async def test_accept_takes_a_sample_of_another_wording(
    file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    user = next(line for line in SCENARIO.splitlines() if "- user:" in line)
    put(file, SCENARIO.replace(user, f"{user}\n      variants: [숨 쉬는 거 셋만 보여 줘]"))
    run = await completed_run(file, variants=True)
    options = AcceptOptions(run=run, sample="a-ko-01~2", paths=(file,), arg="query")
    assert await accept_sample(options, settings) == 0
    assert '{one_of: [호흡, "숨"]}' in capsys.readouterr().out


async def test_accept_adds_phrase(
    file: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await completed_run(file)
    options = AcceptOptions(run=run, sample="a-ko-01#1", paths=(file,), phrase="호흡이 있어요")
    assert await accept_sample(options, settings) == 0
    assert 'contains_any: ["네모 호흡", "호흡이 있어요"]' in capsys.readouterr().out


@pytest.mark.parametrize("sample", ["b-ko-01", "a-ko-01#7"])
async def test_accept_refuses_missing_sample(file: Path, settings: Settings, sample: str) -> None:
    run = await completed_run(file)
    with pytest.raises(RunError, match=f"has no sample {sample}"):
        await accept_sample(AcceptOptions(run=run, sample=sample, paths=(file,)), settings)
    with pytest.raises(RunError, match="is not a run folder"):
        await accept_sample(AcceptOptions(run=file.parent, sample=sample), settings)


@pytest.mark.parametrize("sample", ["a-ko-01#0", "a-ko-01#x", "a-ko-01#²", "a-ko-01#"])
async def test_accept_refuses_invalid_sample_id(
    file: Path, settings: Settings, sample: str
) -> None:
    run = await completed_run(file)
    with pytest.raises(UsageError, match="expected SCENARIO or SCENARIO#2"):
        await accept_sample(AcceptOptions(run=run, sample=sample, paths=(file,)), settings)
