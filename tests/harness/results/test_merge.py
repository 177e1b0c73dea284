"""Runs of several drivers become one, if they were asked the same."""

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import pytest

from lhkit.commands.merge import merge_runs
from lhkit.errors import RequestRefusedError, RunError, UsageError
from lhkit.harness.log import read_manifest, read_records
from lhkit.harness.record import Verdict
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario
from lhkit.messages import ModelEvent, ModelIdentity
from lhkit.models.base import ModelRequest
from lhkit.models.scripted import ScriptedModel, say
from lhkit.settings import Settings
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry

pytestmark = pytest.mark.anyio

CHAT = "- id: chat-{n}\n  ac: AC-12\n  turns: [{{user: hello {n}, reply: {{matches: '\\S'}}}}]\n"
SETTINGS = Settings(locale="en")
Load = Callable[[str], tuple[Scenario, ...]]


@pytest.fixture
def chats(load: Load) -> tuple[Scenario, ...]:
    return load("".join(CHAT.format(n=n) for n in range(6)))


class Refusing:
    """A server that takes no request."""

    identity = ModelIdentity(model="m")

    async def stream(self, _: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        raise RequestRefusedError("no")
        yield

    async def aclose(self) -> None:
        """Nothing is open."""


async def played(
    scenarios: Sequence[Scenario], folder: Path, *, words: str = "hello", model: str = "m"
) -> Path:
    replies = [say(words) for _ in scenarios]
    await replay(
        scenarios,
        ScriptedModel(replies, identity=ModelIdentity(model=model)),
        toolset=ToolRegistry([echo_tool()]),
        run_dir=folder,
        progress=False,
    )
    return folder


async def test_two_parts_are_the_run_of_all(chats: Sequence[Scenario], tmp_path: Path) -> None:
    parts = [
        await played(chats[:4], tmp_path / "a"),
        await played(chats[4:], tmp_path / "b"),
    ]
    whole = await played(chats, tmp_path / "whole")
    assert await merge_runs(tuple(parts), tmp_path / "both", SETTINGS) == 0
    both, alone = Run.load(tmp_path / "both"), Run.load(whole)
    assert [each.sample_id for each in both.records] == [each.sample_id for each in alone.records]
    assert both.manifest["questions"] == alone.manifest["questions"]
    assert both.manifest["merged_from"] == ["a", "b"]
    assert len(both.manifest["invocations"]) == 2
    assert both.summary().total.passed == 6


async def test_a_merged_run_is_resumed_like_any_other(
    chats: Sequence[Scenario], tmp_path: Path
) -> None:
    parts = [await played(chats[:2], tmp_path / "a"), await played(chats[2:4], tmp_path / "b")]
    await merge_runs(tuple(parts), tmp_path / "both", SETTINGS)
    await played(chats, tmp_path / "both")
    assert len(read_records(tmp_path / "both")) == 6


async def test_of_one_sample_in_both_the_valid_answer_counts(
    chats: Sequence[Scenario], tmp_path: Path
) -> None:
    good = await played(chats, tmp_path / "good")
    bad = await replay(
        chats,
        Refusing(),
        toolset=ToolRegistry([echo_tool()]),
        run_dir=tmp_path / "bad",
        progress=False,
    )
    assert {each.judgement.verdict for each in bad.records} == {Verdict.INVALID}
    await merge_runs((good, tmp_path / "bad"), tmp_path / "both", SETTINGS)
    records = read_records(tmp_path / "both")
    assert [each.judgement.verdict for each in records] == [Verdict.PASS] * 6


async def test_runs_of_two_models_are_refused_with_what_differs(
    chats: Sequence[Scenario], tmp_path: Path
) -> None:
    parts = (
        await played(chats[:3], tmp_path / "a"),
        await played(chats[3:], tmp_path / "b", model="other"),
    )
    with pytest.raises(UsageError, match=r"a and b differ in model \(m, other\)"):
        await merge_runs(parts, tmp_path / "both", SETTINGS)


async def test_one_name_for_two_scenarios_is_refused(
    load: Load, chats: Sequence[Scenario], tmp_path: Path
) -> None:
    others = load(CHAT.format(n=0).replace("hello", "good day"))
    parts = (await played(chats, tmp_path / "a"), await played(others, tmp_path / "b"))
    with pytest.raises(UsageError, match="a and b differ in scenario chat-0"):
        await merge_runs(parts, tmp_path / "both", SETTINGS)


async def test_a_run_that_was_played_is_not_written_over(
    chats: Sequence[Scenario], tmp_path: Path
) -> None:
    parts = (await played(chats[:3], tmp_path / "a"), await played(chats[3:], tmp_path / "b"))
    with pytest.raises(UsageError, match="is one of the runs"):
        await merge_runs(parts, tmp_path / "a", SETTINGS)
    other = await played(chats, tmp_path / "other")
    with pytest.raises(RunError, match="holds a run that was played"):
        await merge_runs(parts, other, SETTINGS)
    assert "merged_from" not in read_manifest(other)


async def test_one_run_is_no_merge(chats: Sequence[Scenario], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least two"):
        await merge_runs((await played(chats, tmp_path / "a"),), tmp_path / "both", SETTINGS)
