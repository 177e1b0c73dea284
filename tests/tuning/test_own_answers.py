"""After the play a line for each tool says how it ended: what was found, what was never said."""

from pathlib import Path

import pytest

from lhkit.commands.tune import make_data
from lhkit.commands.tune_options import DataOptions
from lhkit.errors import TuningError
from lhkit.locales import load_catalog
from lhkit.settings import Settings
from lhkit.tuning.phrases.file import read_phrases
from lhkit.tuning.phrases.generate import Drawn, Wish, answers_of

SHELF = """\
from dataclasses import dataclass, field
from datetime import date

from lhkit import Assistant, ToolErr, ToolOk, ToolRegistry

registry = ToolRegistry()


@registry.tool()
def find_book(title: str, deps: list):
    \"\"\"Find a book.\"\"\"
    return ToolOk({"books": [each for each in deps if each == title]})


@registry.tool(destructive=True)
def lend_book(title: str, deps: list):
    \"\"\"Lend a book.\"\"\"
    return ToolOk({"lent": title}) if title in deps else ToolErr("not_found", "no such book")


@dataclass
class Session:
    deps: list
    today: date = date(2026, 6, 15)
    registry: ToolRegistry = field(default_factory=lambda: registry)

    @property
    def assistant(self):
        return Assistant(instructions="Books.", deps=self.deps)

    def state(self):
        return {}

    def close(self):
        pass


class Shelf:
    def open(self, world, locale):
        return Session(list(world["books"]))
"""
PHRASES = """\
worlds: [{books: [Emma, Dune]}]
typos: false
locales:
  en:
    tools:
      find_book:
        say: ['where is {title}?', 'is {title} here?']
        values: {title: [Emma, Dune, Ulysses, Lolita, Walden]}
        replies:
          ok:
            - 'Here: {title}.'
            - 'On shelf {shelf}.'
          not_found: ['No {title}.']
          refused: ['No: {reason}']
      lend_book:
        say: ['lend me {title}']
        values: {title: [Emma, Dune]}
        failing: {title: [Ulysses]}
        replies:
          ok: ['It is yours.']
          not_found: ['No {title}.']
          cancelled: ['It stays.']
"""


async def lines(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    locale: str = "en",
    phrases: str = PHRASES,
) -> dict[str, str]:
    """Return what is told of each tool."""
    (folder / "shelf.py").write_text(SHELF, encoding="utf-8")
    (folder / "p.yaml").write_text(phrases, encoding="utf-8")
    options = DataOptions(
        out=folder / "out.jsonl",
        count=80,
        seed=1,
        toolset=f"{folder / 'shelf.py'}:Shelf",
        phrases=folder / "p.yaml",
    )
    await make_data(options, Settings(locale=locale), progress=False)
    told = (line.partition(": ") for line in capsys.readouterr().out.splitlines())
    return {tool: words for tool, _, words in told if tool in {"find_book", "lend_book"}}


@pytest.mark.anyio
async def test_a_tool_that_finds_too_little_is_told_with_replies_that_were_never_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = (await lines(tmp_path, capsys))["find_book"]
    counts, _, rest = told.partition(". ")
    assert sorted(each.split()[1] for each in counts.split(", ")) == ["not_found", "ok"]
    assert rest.startswith("Not found in ")
    assert rest.endswith("Replies never used: ok[1] (p.yaml:12: {shelf}?), refused (p.yaml:14).")


def wished(outcome: str, *, is_to_fail: bool = False) -> Drawn:
    wish = Wish(
        tool="lend_book",
        locale="en",
        args={},
        words={},
        replies={},
        place=str,
        is_to_fail=is_to_fail,
    )
    return Drawn(wish=wish, outcome=outcome, reply="No {title}.", text="")


@pytest.mark.parametrize(("on_purpose", "by_accident", "warns"), [(9, 2, False), (0, 3, True)])
def test_what_is_not_found_on_purpose_is_counted_and_no_reason_to_warn(
    tmp_path: Path, on_purpose: int, by_accident: int, warns: bool
) -> None:
    (tmp_path / "p.yaml").write_text(PHRASES, encoding="utf-8")
    said = [wished("ok") for _ in range(4)]
    said += [wished("not_found", is_to_fail=True) for _ in range(on_purpose)]
    said += [wished("not_found") for _ in range(by_accident)]
    find, lend = answers_of(read_phrases(tmp_path / "p.yaml"), said)
    assert dict(find.outcomes) == {}
    assert dict(lend.outcomes) == {"ok": 4, "not_found": on_purpose + by_accident}
    assert lend.is_missing_much is warns


@pytest.mark.anyio
async def test_replies_that_the_skeleton_came_with_need_not_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offered = load_catalog("en").text("tune_own.reply_refused")
    assert PHRASES.count("'No: {reason}'") == 1
    phrases = PHRASES.replace("'No: {reason}'", repr(offered))
    told = (await lines(tmp_path, capsys, phrases=phrases))["find_book"]
    assert told.endswith("Replies never used: ok[1] (p.yaml:12: {shelf}?).")


@pytest.mark.anyio
async def test_a_question_that_other_yaml_readers_refuse_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phrases = PHRASES.replace("['where is {title}?',", "[Where?, 'where is {title}?',")
    with pytest.raises(TuningError, match="the required argument 'title'"):
        await lines(tmp_path, capsys, phrases=phrases)
    told = capsys.readouterr().err
    assert told.endswith(
        "p.yaml: other YAML readers refuse an unquoted ? between [ ] or { }: "
        "put those texts in quotes. Lines 7.\n"
    )
