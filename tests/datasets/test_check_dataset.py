"""The shipped scenarios keep what their card promises; and each check can fail."""

import subprocess
import sys
from pathlib import Path

import pytest

from evals.ac_coverage import checksum
from evals.check_dataset import CHECKS, TEXTS, Check, Requirements, check_data, shown
from lhkit.commands.author import SURVIVORS
from lhkit.harness.author.survivors import Survivors, read_survivors
from lhkit.harness.scenario import read_sources
from lhkit.lifehelper.shipped import scenario_folder
from lhkit.settings import Settings

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "datasets" / "ac"

ONE = """\
- id: {id}
  ac: AC-4
  tags: [plain]
  world:
    now: "2026-06-17T20:00:00+09:00"
    habits: [{{protocol_id: daily-walk}}]
  turns:
    - user: "{user}"
      confirm: accept
      expect:
        calls:
          - {{tool: log_tracker_entry, args: {{habit_id: daily-walk, value: done}}, result: ok}}
      reply: {{contains_any: ["기록"]}}
  final: {{tracker: [{{habit_id: daily-walk, date: 2026-06-17, value: done}}]}}
"""
SMALL = Requirements(total=2, per_ac=2, acs=("AC-4",), locales={"ko": (90, 100)})


@pytest.mark.promise("data.check")
@pytest.mark.timeout(1800)  # thousands of conversations: minutes on a busy machine
async def test_the_shipped_scenarios_pass_every_check() -> None:
    checks = await check_data(
        read_sources([scenario_folder()]),
        known=read_survivors(scenario_folder() / SURVIVORS),
        processes=2,
    )
    assert [check.name for check in checks] == list(CHECKS)
    assert {check.name: (check.figure, check.faults) for check in checks if not check.ok} == {}


@pytest.mark.promise("data.card")
def test_the_card_shows_the_figures_and_the_checksum_of_the_files() -> None:
    command = [sys.executable, str(ROOT / "evals" / "ac_coverage.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert checksum(FOLDER) in (FOLDER / "card.md").read_text(encoding="utf-8")


async def checked(
    folder: Path, known: Survivors | None = None, wanted: Requirements = SMALL
) -> dict[str, Check]:
    checks = await check_data(
        read_sources([folder]),
        known=known or Survivors(),
        requirements=wanted,
    )
    return {check.name: check for check in checks}


def written(folder: Path, **texts: str) -> Path:
    for split, text in texts.items():
        (folder / split).mkdir()
        (folder / split / "some.yaml").write_text(text, encoding="utf-8")
    return folder


WALK = ONE.format(id="a-ko-01", user="오늘 20분 걷고 왔어. 남겨 줘.")
OTHER = ONE.format(id="b-ko-01", user="산책했으니 표시 부탁해요")
SAME = ONE.format(id="b-ko-01", user="오늘 30분 걷고 왔어. 남겨 줘.")


async def test_a_small_good_set_passes(tmp_path: Path) -> None:
    checks = await checked(written(tmp_path, dev=WALK, test=OTHER))
    assert {name: check.faults for name, check in checks.items() if not check.ok} == {}
    assert checks["splits"].figure == "dev 1, test 1"


@pytest.mark.promise("data.near_duplicates")
async def test_near_duplicates_in_two_splits_are_a_fault_in_one_a_warning(tmp_path: Path) -> None:
    apart = (await checked(written(tmp_path, dev=WALK, test=SAME)))["splits"]
    assert (apart.ok, len(apart.faults), apart.warnings) == (False, 1, ())
    assert apart.faults[0].startswith("dev/a-ko-01 ~ test/b-ko-01: 0.")
    (tmp_path / "one").mkdir()
    together = (await checked(written(tmp_path / "one", dev=WALK + SAME)))["splits"]
    assert (together.ok, together.faults, len(together.warnings)) == (True, (), 1)


@pytest.mark.parametrize(
    ("old", "new", "failing"),
    [
        ("tool: log_tracker_entry", "tool: log", {"lint", "gold"}),
        ("value: done}]", "value: blank}]", {"lint", "gold"}),
        ('reply: {contains_any: ["기록"]}', "", {"survivors", "mutation"}),
        (
            "habit_id: daily-walk, value: done}, ",
            "habit_id: daily-walk, value: {any: true}}, ",
            set(),
        ),
        ("ac: AC-4", "ac: AC-5", {"counts"}),
        ("tags: [plain]", "tags: [write]", {"difficulty"}),
        ("tags: [plain]", "tags: [plain, hard]", {"difficulty"}),
        ("ac: AC-4", "ac: AC-4\n  locale: en", {"lint", "locales"}),
    ],
)
async def test_each_check_can_fail(tmp_path: Path, old: str, new: str, failing: set[str]) -> None:
    assert old in WALK
    checks = await checked(written(tmp_path, dev=WALK.replace(old, new, 1), test=OTHER))
    assert {name for name, check in checks.items() if not check.ok} == failing


async def test_a_pass_of_a_baseline_is_its_own_line(tmp_path: Path) -> None:
    world = '{now: "2026-06-17T20:00:00+09:00"}'
    mute = f"- {{id: a-ko-01, ac: AC-4, world: {world}, turns: [{{user: 응}}]}}\n"
    checks = await checked(written(tmp_path, dev=mute))
    assert (checks["silent"].ok, checks["silent"].figure) == (False, "0 / 1")
    assert (checks["always_call"].ok, checks["always_call"].figure) == (True, "1 / 1")


@pytest.mark.parametrize(("tool", "tried"), [("add_habit", True), ("nap", False)])
async def test_only_what_cannot_be_played_is_left_out_of_the_mistakes(
    tmp_path: Path, tool: str, *, tried: bool
) -> None:
    text = WALK.replace("  turns:", f"  faults: [{{tool: {tool}}}]\n  turns:")
    checks = await checked(written(tmp_path, dev=text))
    assert (checks["mutation"].figure != "0 / 0 = 100.0%") is tried


async def test_a_listed_survivor_that_is_noticed_is_a_fault(tmp_path: Path) -> None:
    known = Survivors(reasons={("a-ko-01", "drop_call@0.0"): "why", ("gone", "x@0"): "why"})
    check = (await checked(written(tmp_path, dev=WALK, test=OTHER), known))["survivors"]
    assert check.faults == (
        "a-ko-01 drop_call@0.0: is listed, but no survivor",
        "gone x@0: is listed, but no survivor",
    )


async def test_the_checksum_covers_names_and_bytes(tmp_path: Path) -> None:
    first = checksum(written(tmp_path, dev=WALK))
    (tmp_path / "dev" / "some.yaml").write_text(WALK + " ", encoding="utf-8")
    second = checksum(tmp_path)
    (tmp_path / "dev" / "some.yaml").rename(tmp_path / "dev" / "other.yaml")
    (tmp_path / "card.md").write_text("not data", encoding="utf-8")
    assert len({first, second, checksum(tmp_path)}) == 3


@pytest.mark.parametrize(("locale", "took"), [("ko", "2초"), ("en", "2 seconds")])
async def test_it_is_one_table_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], locale: str, took: str
) -> None:
    ticks = iter([1.0, 3.0, 0.0, 0.0])
    folder, settings = written(tmp_path, dev=WALK, test=OTHER), Settings(locale=locale)
    assert await shown(folder, settings, lambda: next(ticks), requirements=SMALL) == 0
    assert took in capsys.readouterr().out
    mute = WALK.replace('reply: {contains_any: ["기록"]}', "")
    (folder / "dev" / "some.yaml").write_text(mute, encoding="utf-8")
    assert await shown(folder, settings, lambda: next(ticks), requirements=SMALL) == 1
    assert "a-ko-01 say_nothing@0" in capsys.readouterr().out


def test_every_check_has_a_name_in_both_languages() -> None:
    assert set(TEXTS["ko"]) == set(TEXTS["en"]) >= set(CHECKS)
