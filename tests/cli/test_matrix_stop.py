"""`lhkit matrix --stop-when-decided`: arms are dropped, the table says so, and a run resumes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lhkit import app, scale
from lhkit.base.errors import UsageError
from lhkit.cli import matrix as matrix_module
from lhkit.cli.compare import CompareOptions, compare_runs
from lhkit.cli.eval.evaluation import Evaluation, OpenedModel
from lhkit.cli.matrix import MatrixOptions, run_matrix
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.harness.results.results import Run
from lhkit.harness.scenarios.scenario_filter import StoppedRun, random_key
from lhkit.models.base import ChatModel
from lhkit.models.recorded.scripted import ScriptedModel, say
from lhkit.settings import Settings
from tests.cli.test_stop_when_decided import SCENARIO

pytestmark = [pytest.mark.anyio, pytest.mark.longer]

NAMES = [f"habits-{n}" for n in range(20)]


class Suite:
    """A suite with twenty scenarios in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "some.yaml").write_text(
            "".join(SCENARIO.format(n=n) for n in range(20)), encoding="utf-8"
        )
        self.settings = Settings(cache_dir=folder / "cache", locale="en", base_url=None)

    async def run(
        self,
        models: list[str],
        *,
        is_stopping: bool = True,
        users: list[str] | None = None,
        more: dict[str, Any] | None = None,
        **top: Any,
    ) -> int:
        file = self.folder / "suite.toml"
        lines = [f"{name} = {value!r}" for name, value in top.items()]
        arms = ["scenarios = ['some.yaml']", *lines, "[arms]", f"models = {models}"]
        arms += [f"users = {users}"] if users else []
        if len(models) == 1:
            arms.append('prompts = ["default", "short"]\n[prompts.short]\nen = "x"')
        file.write_text("\n".join(arms), encoding="utf-8")
        options = MatrixOptions(
            suite=file,
            runs_dir=self.folder / "runs",
            stop_when_decided=is_stopping,
            **(more or {}),
        )
        return await run_matrix(options, self.settings)

    def arm(self, name: str) -> Run:
        return Run.load(self.folder / "runs" / "suite" / name)


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


async def test_matrix_drops_the_arm_that_is_worse_and_says_so(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await suite.run(["gold", "silent"]) == 0
    gold, silent = suite.arm("gold"), suite.arm("silent")
    assert (len(gold.records), gold.manifest.selection) == (20, None)
    assert silent.manifest.selection is not None
    assert silent.manifest.selection.stopped == StoppedRun(
        seed=0, baseline="gold", planned=20, looked=7, decision=-1, arms=2
    )
    first = sorted(NAMES, key=lambda name: random_key(0, name))
    played = {record.sample_id.scenario for record in silent.records}
    assert played == set(first[: len(played)])
    assert {run.manifest.invocations[-1].order_seed for run in (gold, silent)} == {0}
    printed = shown(capsys)
    assert "silent: dropped after 7 of 20 scenarios, because it is worse than gold (p " in printed
    assert "always-valid test" in printed
    assert "exact p" not in printed


async def test_matrix_keeps_a_dropped_arm_and_runs_the_rest_without_the_option(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    await suite.run(["gold", "silent"])
    before = [record.sample_id for record in suite.arm("silent").records]
    await suite.run(["gold", "silent"])
    assert [record.sample_id for record in suite.arm("silent").records] == before
    capsys.readouterr()
    await suite.run(["gold", "silent"], is_stopping=False)
    whole = suite.arm("silent")
    assert (len(whole.records), whole.manifest.selection) == (20, None)
    assert whole.manifest.invocations[-1].kept == len(before)
    printed = shown(capsys)
    assert "dropped" not in printed
    assert "exact p" in printed


async def test_matrix_drops_no_arm_that_was_run_before_a_better_one(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is whole already; the table says that it is worse."""
    await suite.run(["silent", "gold"])
    assert [len(suite.arm(name).records) for name in ("silent", "gold")] == [20, 20]
    printed = shown(capsys)
    assert "dropped" not in printed
    assert "always-valid test" in printed


async def test_matrix_does_not_drop_equal_arms(suite: Suite) -> None:
    await suite.run(["gold"])
    assert [len(suite.arm(name).records) for name in ("default", "short")] == [20, 20]


async def test_dropped_arm_is_no_rival_of_later_ones(suite: Suite) -> None:
    await suite.run(["gold", "silent"], users=["script", "hasty"], concurrency=1)
    stopped = [suite.arm(f"silent-{user}").manifest.selection for user in ("script", "hasty")]
    assert [part and part.stopped and part.stopped.baseline for part in stopped] == [
        "gold-script",
        "gold-script",
    ]
    assert [part and part.stopped and part.stopped.arms for part in stopped] == [4, 4]


async def test_compare_of_dropped_arms_is_always_valid_too(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    await suite.run(["gold", "silent"], users=["script", "hasty"])
    capsys.readouterr()
    names = ("gold-script", "gold-hasty", "silent-script")
    a, b, c = (suite.folder / "runs" / "suite" / name for name in names)
    await compare_runs(CompareOptions(run_a=a, run_b=b, more=(c,)), suite.settings)
    printed = shown(capsys)
    assert "silent-script: dropped after" in printed
    assert "because it is worse than gold-script" in printed
    assert "exact p" not in printed
    assert (
        "Not significantly different from it (corrected p of at least 0.05): gold-hasty" in printed
    )


async def test_dropped_arm_runs_on_if_more_arms_need_more_evidence(suite: Suite) -> None:
    await suite.run(["gold", "silent"], concurrency=1)
    assert len(suite.arm("silent").records) == 7
    for folder in ("gold", "silent"):
        (suite.folder / "runs" / "suite" / folder).rename(
            suite.folder / "runs" / "suite" / f"{folder}-script"
        )
    await suite.run(["gold", "silent"], users=["script", "hasty"], concurrency=1)
    assert len(suite.arm("silent-script").records) > 7


async def test_matrix_that_may_drop_replaces_no_whole_arm(suite: Suite) -> None:
    await suite.run(["gold", "silent"], is_stopping=False)
    await suite.run(["gold", "silent"])  # nothing is left out of what is there
    assert len(suite.arm("silent").records) == 20
    text = (suite.folder / "some.yaml").read_text(encoding="utf-8")
    (suite.folder / "some.yaml").write_text(text.replace("habits?", "all?"), encoding="utf-8")
    with pytest.raises(UsageError, match="may stop early would replace"):
        await suite.run(["gold", "silent"])
    assert len(suite.arm("silent").records) == 20
    assert len(suite.arm("gold").manifest.invocations) == 3  # the first arm is always whole


async def test_arms_on_replicas_are_run_one_by_one_and_dropped(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def connect(*_: Any) -> AsyncIterator[object]:
        opened.append("cluster")
        yield object()

    @asynccontextmanager
    async def replicas(evaluation: Evaluation, *_: Any) -> AsyncIterator[OpenedModel]:
        opened.append(evaluation.folder.name)
        yield OpenedModel(source=REFERENCE_MODELS[evaluation.choice.name or ""]())

    monkeypatch.setattr(scale, "connect", connect)
    monkeypatch.setattr(scale, "require_ray", lambda _: None)
    monkeypatch.setattr(scale, "require_model", lambda *_: None)
    monkeypatch.setattr(Evaluation, "open_replicas", replicas)
    await suite.run(["gold", "silent"], more={"ray": "local"})
    assert opened == ["cluster", "gold", "silent"]
    assert suite.arm("silent").manifest.selection is not None


CHAT = """
- id: chat-{n}
  ac: AC-12
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: hello, reply: {{matches: '\\S'}}}}]
"""


async def test_dropped_arm_of_a_served_model_is_finished(
    suite: Suite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(
        choice: app.ModelChoice, _settings: Settings, **_: object
    ) -> AsyncIterator[ChatModel]:
        name = choice.name or ""
        identity = ModelIdentity(
            model=name, base_url=choice.base_url or "", dialect=choice.known_dialect or "openai"
        )
        answer = "hello" if name == "good" else ""
        yield ScriptedModel(lambda _request: say(answer), identity=identity)

    monkeypatch.setattr(matrix_module, "open_model", opened)
    text = "".join(CHAT.format(n=n) for n in range(20))
    (suite.folder / "some.yaml").write_text(text, encoding="utf-8")
    options = {"base_url": "http://served:1", "concurrency": 1}
    await suite.run(["good", "bad"], **options)
    assert "[2/2] bad\n" in capsys.readouterr().out
    await suite.run(["good", "bad"], **options)
    assert "[2/2] bad: dropped before, not run again." in capsys.readouterr().out
    assert len(suite.arm("bad").manifest.invocations) == 1
    await suite.run(["good", "bad"], seed=1, **options)  # another order: it does not stand
    assert suite.arm("bad").manifest.invocations[-1].order_seed == 1
    await suite.run(["good", "bad"], is_stopping=False, **options)
    assert "dropped" not in capsys.readouterr().out.rpartition("[2/2]")[2]
    assert len(suite.arm("bad").records) == 20


async def test_thresholds_are_checked_on_the_scenarios_of_a_dropped_arm(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await suite.run(["gold", "silent"], fail_under=50) == 1
    assert "silent: The pass rate 0.0% is below 50.0%." in shown(capsys)


async def test_matrix_of_one_arm_has_nothing_to_drop(suite: Suite) -> None:
    file = suite.folder / "one.toml"
    file.write_text("scenarios = ['some.yaml']\n[arms]\nmodels = ['gold']", encoding="utf-8")
    options = MatrixOptions(suite=file, runs_dir=suite.folder, stop_when_decided=True)
    with pytest.raises(UsageError, match="has one arm"):
        await run_matrix(options, suite.settings)


async def test_matrix_does_not_drop_arms_that_differ_in_descriptions(suite: Suite) -> None:
    file = suite.folder / "words.toml"
    axis = "[arms]\nmodels = ['gold']\n[descriptions.short]\nadd_habit = 'x'"
    text = f"scenarios = ['some.yaml']\n{axis}"
    file.write_text(text, encoding="utf-8")
    options = MatrixOptions(suite=file, runs_dir=suite.folder, stop_when_decided=True)
    with pytest.raises(UsageError, match="chooses descriptions on one half"):
        await run_matrix(options, suite.settings)
