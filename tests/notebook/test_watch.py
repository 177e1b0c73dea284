"""A run watched in a notebook: told by `replay`, or by the folder that another process writes."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lhkit.errors import MissingRunError, UsageError
from lhkit.harness.log import RECORDS
from lhkit.harness.record import encode_record
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.harness.scenario import Scenario, load_scenarios
from lhkit.harness.watch import Followed, name
from lhkit.models.scripted import ScriptedModel, call, say
from lhkit.notebook import RunWatch

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

CHAT = """
- id: chat-{n}
  ac: AC-{ac}
  locale: en
  world: {{now: "2026-06-15T09:00:00+09:00"}}
  turns: [{{user: which habits do I have?, expect: {{calls: [{{tool: list_habits}}]}}}}]
"""
EVIL = "<img src=x onerror=alert(1)>"


async def shown(watch: RunWatch, is_so: Callable[[], bool]) -> None:
    """Wait until what a watch shows is so; each change of the page is looked at."""
    changed = asyncio.Event()
    watch.widget.observe(lambda _: changed.set(), "parts")
    while not is_so():
        await changed.wait()
        changed.clear()


def invocation(folder: Path, *, has_ended: bool) -> None:
    """Have the manifest of a folder say that its run goes on, or that it has ended."""
    file = folder / "manifest.json"
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    told["invocations"][-1] |= {"wall_s": 2.5 if has_ended else 0.0, "finished": has_ended}
    file.write_text(json.dumps(told), encoding="utf-8")


@pytest.fixture
def scenarios(tmp_path: Path) -> tuple[Scenario, ...]:
    file = tmp_path / "mine.yaml"
    file.write_text("".join(CHAT.format(n=n, ac=n % 2) for n in range(6)), encoding="utf-8")
    return load_scenarios([file])


def model(passing: int) -> ScriptedModel:
    """Return a model that passes the first so many scenarios, and has only words for the others."""
    good = [call("list_habits"), say("None yet.")]
    return ScriptedModel([*good * passing, *[say(EVIL)] * 20])


async def test_replay_tells_it_each_sample_and_it_shows_what_the_run_shows(
    scenarios: tuple[Scenario, ...],
) -> None:
    watch = RunWatch(asked=6, locale="en")
    run = await replay(scenarios, model(4), watch=watch, progress=False)
    assert repr(watch).splitlines()[1:] == [
        "  6 of 6 ended · 4/6 67% [30–90]",
        "  AC-0: 2/3 67% [21–94]",
        "  AC-1: 2/3 67% [21–94]",
        f"  chat-4 · fail · {run.records[4].judgement.reasons[0]}",
        f"  chat-5 · fail · {run.records[5].judgement.reasons[0]}",
    ]
    watch.open("chat-5")
    page = "".join(watch.widget.parts)
    assert "The run has ended." in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert EVIL not in page
    watch.open("")
    assert EVIL[1:] not in "".join(watch.widget.parts)


async def test_a_folder_that_another_process_writes_is_followed_to_its_end(
    scenarios: tuple[Scenario, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run = await replay(scenarios, model(4), run_dir=folder, progress=False)
    lines = [f"{encode_record(each)}\n" for each in run.records]
    invocation(folder, has_ended=False)
    (folder / RECORDS).write_text("".join(lines[:2]) + lines[2][:40], encoding="utf-8")
    watch = Run.load(folder).watch(locale="en")
    assert (watch.state.ended, watch.state.asked) == (2, 6)
    (folder / RECORDS).write_text("".join(lines), encoding="utf-8")
    await shown(watch, lambda: "6 of 6 ended" in watch.widget.parts[0])
    assert "The run has ended." not in "".join(watch.widget.parts)
    invocation(folder, has_ended=True)
    await shown(watch, lambda: "The run has ended." in "".join(watch.widget.parts))
    assert repr(watch).splitlines()[1] == "  6 of 6 ended · 4/6 67% [30–90]"
    watch.close()


async def test_a_folder_is_counted_as_the_run_is_read_also_when_it_is_taken_up_again(
    scenarios: tuple[Scenario, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    await replay(scenarios, model(4), run_dir=folder, progress=False)
    followed = Followed(folder)
    assert followed.read()
    assert not followed.read()
    (first, *rest) = Run.load(folder).records
    invalid = encode_record(first).replace('"verdict":"pass"', '"verdict":"invalid"', 1)
    with (folder / RECORDS).open("a", encoding="utf-8") as file:
        file.write(f"{invalid}\n")  # the valid answer before it counts
    assert not followed.read()
    assert (followed.state.ended, followed.state.invalid) == (6, 0)
    lines = [invalid, *map(encode_record, rest)]
    (folder / RECORDS).write_text("".join(f"{each}\n" for each in lines[:5]), encoding="utf-8")
    assert followed.read()  # shorter than before: somebody put others in their place
    assert (followed.state.ended, followed.state.invalid) == (5, 1)
    with (folder / RECORDS).open("a", encoding="utf-8") as file:
        file.write(f"{lines[5]}\n{encode_record(first)}\n")
    assert followed.read()
    assert (followed.state.ended, followed.state.invalid, followed.state.total.passed) == (6, 0, 4)
    assert [name(each) for each in followed.state.failures] == ["chat-4", "chat-5"]


async def test_a_broken_record_is_told_in_the_view_and_ends_it(
    scenarios: tuple[Scenario, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    await replay(scenarios, model(4), run_dir=folder, progress=False)
    invocation(folder, has_ended=False)
    watch = Run.load(folder).watch()
    with (folder / RECORDS).open("a", encoding="utf-8") as file:
        file.write("{}\n")
    await shown(watch, lambda: "records.jsonl" in watch.widget.parts[-1])
    watch.close()


def test_a_run_that_is_kept_nowhere_says_how_it_can_be_watched(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give replay a run_dir, or a RunWatch"):
        Run(records=(), manifest={}).watch()
    with pytest.raises(MissingRunError):
        RunWatch(tmp_path / "none")
