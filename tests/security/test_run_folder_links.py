"""Links and pipes in a run folder: commands neither write through them nor block."""

import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import anyio
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from lhkit.base import files
from lhkit.base.errors import LhkitError, RunError
from lhkit.cli.frame.parser import build_parser
from lhkit.harness.authoring.reference import gold_model
from lhkit.harness.chats.chats import forget_chats
from lhkit.harness.chats.reviews import Label, LabelKind, ReviewFile, places_of, turn_sha256
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.store import write_manifest
from lhkit.harness.results.results import Run
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.notebook.boards.review import Review

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]

NAMES = [
    "records.jsonl",
    "records.jsonl.new",
    "manifest.json",
    "manifest.json.new",
    "report.html",
    "report.md",
    "log.eval",
    "messages.jsonl",
    "traces.jsonl",
    "run.lock",
    "reviews",
    "reviews/kim.jsonl",
    "reviews/run.lock",
]
SCENARIO = """
- id: list
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: What are my habits?
      expect: {calls: [{tool: list_habits}]}
      reply: {contains_any: [none]}
      gold: {say: You have none.}
"""
"""Without a criterion, so that a report has few charts."""
SCENARIOS = "scenarios.yaml"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run folder with one conversation, marked as a user's chat."""
    folder = tmp_path_factory.mktemp("run")
    file = tmp_path_factory.mktemp("suite") / SCENARIOS
    file.write_text(SCENARIO)
    scenario = load_scenarios([file])[0]

    async def play() -> Run:
        return await replay([scenario], gold_model, run_dir=folder, progress=False)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(anyio.run, play).result()
    write_manifest(folder, run.manifest.model_copy(update={"user": "person"}))
    return folder


@pytest.fixture
def theirs(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the run folder as `runs/theirs` in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    Path(SCENARIOS).write_text(SCENARIO)
    return shutil.copytree(run_folder, tmp_path / "runs/theirs")


def to_its_end(work: object) -> int:
    """Run a coroutine in a separate thread."""

    async def waited() -> int:
        return int(await work)  # type: ignore[misc] - a coroutine

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, waited).result()


@cache
def parser() -> typer.Typer:
    return build_parser(to_its_end, "en")


def lhkit(*args: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(parser(), args, env={"COLUMNS": "300"})


def label(folder: Path, reviewer: str = "kim") -> None:
    """Add a label to the first place of a folder's first conversation."""
    Review(folder, reviewer=reviewer, locale="en").judge("right")


COMMANDS: list[Callable[[Path], object]] = [
    lambda run: lhkit("report", str(run)),
    lambda run: lhkit("report", str(run), "--markdown", str(run / "report.md")),
    lambda run: lhkit("compare", str(run), str(run)),
    lambda run: lhkit("export", str(run), "--inspect", str(run / "log.eval")),
    lambda run: lhkit("export", str(run), "--openai-messages", str(run / "messages.jsonl")),
    lambda run: lhkit("export", str(run), "--otel", str(run / "traces.jsonl")),
    lambda run: lhkit("rescore", str(run), SCENARIOS),
    lambda run: lhkit("rescore", str(run), SCENARIOS, "--into", str(run)),
    lambda run: lhkit("eval", SCENARIOS, "--model", "gold", "--limit", "1", "--name", run.name),
    lambda run: lhkit("chats", "list", str(run)),
    label,
    lambda run: lhkit("chats", "forget", "--all", "--in", str(run)),
]


def run_all_commands(run: Path) -> None:
    """Run all commands; only errors of lhkit are allowed."""
    for command in COMMANDS:
        try:
            result = command(run)
        except (LhkitError, FileNotFoundError):
            continue
        if isinstance(result, Result):
            assert isinstance(result.exception, SystemExit | None), result.output


OUTPUTS = [
    "report.html",
    "report.md",
    "log.eval",
    "messages.jsonl",
    "traces.jsonl",
    "reviews/run.lock",
]


TEMPORARY = ["records.jsonl.new", "manifest.json.new"]


GROUPS = [OUTPUTS, TEMPORARY, *([name] for name in NAMES if name not in [*OUTPUTS, *TEMPORARY])]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_no_command_writes_through_a_link_in_a_run_folder(
    theirs: Path, tmp_path: Path, names: list[str]
) -> None:
    before: dict[Path, bytes | None] = {}
    for number, name in enumerate(names):
        path, victim = theirs / name, tmp_path / f"victim{number}"
        path.parent.mkdir(exist_ok=True)
        if name == "reviews":
            victim.mkdir()
        elif path.exists():
            path.rename(victim)
        else:
            victim.write_text("mine\n")
        before[victim] = None if victim.is_dir() else victim.read_bytes()
        path.symlink_to(victim)
    run_all_commands(theirs)
    for victim, content in before.items():
        if content is None:
            assert list(victim.iterdir()) == []
        else:
            assert victim.read_bytes() == content


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_no_command_waits_for_a_pipe_in_a_run_folder(theirs: Path, names: list[str]) -> None:
    for name in names:
        path = theirs / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    run_all_commands(theirs)


def test_report_replaces_a_link_and_keeps_its_target(theirs: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    (theirs / "report.html").symlink_to(victim)
    assert lhkit("report", str(theirs)).exit_code == 0
    assert victim.read_text() == "mine\n"
    assert "<html" in (theirs / "report.html").read_text()
    assert not (theirs / "report.html").is_symlink()


def test_report_names_the_pipe_that_it_refuses(theirs: Path) -> None:
    os.mkfifo(theirs / "report.html")
    refused = lhkit("report", str(theirs))
    assert refused.exit_code == 3
    assert "report.html" in refused.output
    assert "not a regular file" in refused.output


def test_rescore_refuses_a_link_where_its_folder_would_be(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    theirs.with_name("theirs-rescored").symlink_to(tmp_path / "elsewhere")
    assert "--into" in lhkit("rescore", str(theirs), SCENARIOS).output
    assert not list((tmp_path / "elsewhere").iterdir())


def test_write_whole_refuses_a_device(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to(os.devnull)
    for path in (tmp_path / "null", Path(os.devnull)):
        with pytest.raises(OSError, match="not a regular file"):
            files.write_atomically(path, b"x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    with pytest.raises(OSError, match="not a regular file"):
        files.open_regular(Path("/dev/zero"))


def append_many(
    folder: Path, begin: int, count: int, meet: Callable[[], object] = lambda: None
) -> None:
    """Append labels with different replies, once all who do so have met."""
    record = Run.load(folder).records[0]
    place = list(places_of(record))[-1]
    seen = turn_sha256(record.trajectory.turns[place.turn])
    file = ReviewFile(folder, "kim")
    meet()
    for number in range(begin, begin + count):
        verdict = LabelKind.NOT_FINE
        file.append(Label(place=place, verdict=verdict, turn_sha256=seen, say=str(number)))


def test_review_file_keeps_every_label_of_two_processes(theirs: Path) -> None:
    spawn = get_context("spawn")
    barrier = spawn.Barrier(2, timeout=100)
    other = spawn.Process(target=append_many, args=(theirs, 1_000, 100, barrier.wait))
    other.start()
    append_many(theirs, 0, 100, barrier.wait)
    other.join()
    lines = (theirs / "reviews/kim.jsonl").read_bytes().split(b"\n")
    assert len(lines) == 201


SECRET = b"42424242424242"  # longer than what a time may contain by chance


def test_forget_chats_removes_the_labels_of_every_reviewer(theirs: Path) -> None:
    label(theirs, "kim")
    append_many(theirs, int(SECRET), 1)
    (theirs / f"{files.DRAFT}0").write_bytes(SECRET)
    name = Run.load(theirs).records[0].sample_id.scenario
    forget_chats(theirs, [name])
    everything = b"".join(path.read_bytes() for path in theirs.rglob("*") if path.is_file())
    assert SECRET not in everything
    assert name.encode() not in (theirs / "records.jsonl").read_bytes()
    assert not list((theirs / "reviews").glob("*.jsonl"))


def test_forget_chats_keeps_the_labels_of_other_chats(theirs: Path) -> None:
    line = (theirs / "records.jsonl").read_text()
    name = Run.load(theirs).records[0].sample_id.scenario
    with (theirs / "records.jsonl").open("a") as file:
        file.write(line.replace(f'"scenario":"{name}"', '"scenario":"other"'))
    write_manifest(theirs, Manifest(user="person"))
    for record in Run.load(theirs).records:
        place = list(places_of(record))[-1]
        seen = turn_sha256(record.trajectory.turns[place.turn])
        written = Label(place=place, verdict=LabelKind.FINE, turn_sha256=seen)
        ReviewFile(theirs, "kim").append(written)
    forget_chats(theirs, [name])
    assert [label.place.sample for label in ReviewFile(theirs, "kim").labels] == ["other"]


def test_forget_chats_with_a_broken_label_forgets_nothing(theirs: Path) -> None:
    append_many(theirs, 1, 1)
    with (theirs / "reviews/kim.jsonl").open("ab") as file:
        file.write(b"{}\n")
    before = (theirs / "records.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"kim\.jsonl:2 is not a valid label"):
        forget_chats(theirs, [Run.load(theirs).records[0].sample_id.scenario])
    assert (theirs / "records.jsonl").read_bytes() == before
