"""What is nearly a line of a scenario is not learnt from, where the scenarios are named."""

from pathlib import Path

import pytest

from lhkit.commands.tune import make_data
from lhkit.commands.tune_options import DataOptions
from lhkit.errors import UsageError
from lhkit.settings import Settings
from lhkit.tuning.apart import Apart
from lhkit.tuning.data import read_sequences
from tests.tuning.test_own_sayings import LISTING, WORLD, phrases, spoken, tools

REFERENCE = "tests.tuning.test_own_sayings:diaries"
SCENARIO = """\
- id: whats-on
  ac: diary
  locale: en
  world: {now: 2026-06-18T09:00:00+09:00}
  turns: [{user: what is there to be seen on Friday}]
"""


SAY = ["what is on?", "what's there to see on Friday?"]


async def said(folder: Path, *, apart: tuple[Path, ...]) -> set[str]:
    text = WORLD + phrases(tools=tools(list_events={**LISTING, "say": SAY}))
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    options = DataOptions(
        out=folder / "o.jsonl",
        count=40,
        seed=1,
        dev_share=0,
        toolset=REFERENCE,
        phrases=folder / "p.yaml",
        apart=apart,
    )
    settings = Settings(locale="en")
    await make_data(options, settings, progress=False)
    return {spoken(each.text)[0] for each in read_sequences(options.out)}


@pytest.mark.anyio
async def test_a_conversation_that_is_nearly_a_scenario_is_left_out_and_that_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios = tmp_path / "scenarios.yaml"
    scenarios.write_text(SCENARIO, encoding="utf-8")
    assert await said(tmp_path, apart=()) == set(SAY)
    assert "Left out" not in capsys.readouterr().err
    assert await said(tmp_path, apart=(scenarios,)) == {"what is on?"}
    assert "Left out" in capsys.readouterr().err


@pytest.mark.anyio
async def test_phrases_that_are_all_near_the_scenarios_leave_nothing_to_learn(
    tmp_path: Path,
) -> None:
    scenarios = tmp_path / "scenarios.yaml"
    near = SCENARIO.replace("turns: [", "turns: [{user: what is on}, ")
    scenarios.write_text(near, encoding="utf-8")
    with pytest.raises(UsageError, match="than the scenarios of --apart"):
        await said(tmp_path, apart=(scenarios,))


def test_case_marks_and_a_few_letters_make_no_other_line() -> None:
    is_apart = Apart(["우유 두 개 넣어 줘"])
    assert not is_apart(["우유 두개 넣어줘!"])
    assert not is_apart(["안녕", "우유 두 개 넣어 줘"])
    assert is_apart(["냉동실에 뭐가 있어?"])
