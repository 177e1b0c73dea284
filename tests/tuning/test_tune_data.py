from dataclasses import replace
from pathlib import Path

import pytest

from lhkit.commands.tune import dev_path, make_data
from lhkit.commands.tune_options import DataOptions
from lhkit.errors import UsageError
from lhkit.settings import Settings
from lhkit.text import printable
from lhkit.tuning.data import read_sequences

TALKS = """
from lhkit.models.scripted import call, say
from lhkit.tuning.teacher import Conversation, Line

def act(settled):
    return say("That is all of them.") if settled else call("list_habits")

def talks(count, *, seed, korean_share):
    for number in range(count):
        lines = (Line(user=f"My habits? ({seed}/{number})", act=act),)
        name = f"mine.{number}"
        world = {"now": "2026-06-15T09:00:00+09:00"}
        yield Conversation(name=name, kind="list", locale="en", world=world, lines=lines)
"""


@pytest.fixture
def author(tmp_path: Path) -> str:
    (tmp_path / "talks.py").write_text(TALKS, encoding="utf-8")
    return f"{tmp_path / 'talks.py'}:talks"


async def made(options: DataOptions, author: str, locale: str = "ko") -> int:
    asked = replace(options, conversations=author)
    return await make_data(asked, Settings(locale=locale), progress=False)


@pytest.mark.anyio
async def test_the_files_hold_every_conversation_once_and_say_what_they_are(
    author: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "data" / "train.jsonl"
    options = DataOptions(out=out, count=40, seed=5, dev_share=0.25)
    assert await made(options, author) == 0
    train, dev = read_sequences(out), read_sequences(dev_path(out))
    assert len({each.id.rsplit(".", 1)[0] for each in train}) == 30
    assert 0 < len(dev) <= 10
    assert {each.text for each in train}.isdisjoint({each.text for each in dev})
    assert str(out) in capsys.readouterr().out
    before = out.read_bytes()
    await made(options, author, "en")
    assert out.read_bytes() == before


@pytest.mark.anyio
async def test_openings_are_what_a_conversation_begins_with_and_the_dev_file_holds_whole_ones(
    author: str, tmp_path: Path
) -> None:
    whole, cut = (
        DataOptions(out=tmp_path / name, count=40, seed=5, dev_share=0.25, openings=share)
        for name, share in (("whole.jsonl", 0.0), ("cut.jsonl", 0.5))
    )
    for options in (whole, cut):
        await made(options, author)
    assert dev_path(whole.out).read_bytes() == dev_path(cut.out).read_bytes()
    pairs = list(zip(read_sequences(whole.out), read_sequences(cut.out), strict=True))
    assert all(before.text.startswith(after.text) for before, after in pairs)
    assert 5 < sum(before != after for before, after in pairs) < 25


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["[red]", "[x][/y]", "a\x1b[2Jb"])
async def test_a_folder_of_any_name_is_shown_as_it_is_and_steers_nothing(
    author: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / name / "train.jsonl"
    options = DataOptions(out=out, count=2, seed=5, dev_share=0)
    assert await made(options, author) == 0
    shown = capsys.readouterr().out
    assert printable(str(out)) in shown
    assert "\x1b" not in shown


@pytest.mark.anyio
async def test_a_share_that_leaves_nothing_to_learn_from_is_one_sentence(
    author: str, tmp_path: Path
) -> None:
    options = DataOptions(out=tmp_path / "t.jsonl", count=3, dev_share=1.0)
    with pytest.raises(UsageError, match="nothing is left to learn from"):
        await made(options, author)
