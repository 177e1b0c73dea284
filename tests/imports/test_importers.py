"""Importers of installed packages: the entry points of `lhkit.importers`."""

import asyncio
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lhkit.cli.frame.parser import build_parser
from lhkit.harness.scenarios.loader import load_scenarios

pytestmark = pytest.mark.longer

MODULE = '''
from pathlib import Path
from lhkit.imports import Imported, ImportedFile, Loss

TOOLSET = """
from lhkit import ToolRegistry
toolset = ToolRegistry()
@toolset.tool(destructive=False)
def find_note(text: str) -> dict:
    \\'\\'\\'Find a note.\\'\\'\\'
    return {}
"""

async def import_notes(file: Path, *, first: int = 1) -> Imported:
    """Import notes, one a line.

    More, for who reads the code.
    """
    scenarios = tuple(
        {"id": f"note-{n}", "ac": "notes", "locale": "en",
         "turns": [{"user": line, "gold": {"say": "Noted."}, "reply": {"contains_any": ["Noted"]}}]}
        for n, line in enumerate(file.read_text().splitlines(), first)
    )
    return Imported(toolset=TOOLSET, suites=(ImportedFile(name="toolset", scenarios=scenarios),),
                    losses=(Loss(code="categories"),))

def import_nothing(file: Path) -> None:
    """Import nothing."""
'''


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site" / "note_importer-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: note-importer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[lhkit.importers]\nnotes = note_importer:import_notes\n"
        "nothing = note_importer:import_nothing\nbroken = note_importer:missing\n"
        "tau2 = note_importer:import_nothing\n"
    )
    (tmp_path / "site" / "note_importer.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "note_importer", raising=False)
    monkeypatch.chdir(tmp_path)


def run(line: str) -> tuple[int, str]:
    parser = build_parser(asyncio.run)  # noqa: TID251 - as __main__ does
    result = CliRunner().invoke(parser, line.split())
    return result.exit_code, result.output


def test_import_with_an_importer_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Any milk?\nAny eggs?\n")
    code, output = run("import notes notes.txt --first 7 --into mine")
    assert code == 0, output
    first, second = load_scenarios([tmp_path / "mine" / "scenarios.yaml"])
    assert (first.id, second.turns[0].user) == ("note-7", "Any eggs?")
    assert "lhkit eval mine/scenarios.yaml --toolset mine/toolset.py:toolset" in output


@pytest.mark.parametrize(
    ("line", "code", "texts"),
    [
        (
            "import --help",
            0,
            [
                "Import notes, one a line.",
                "tau2-bench's airline",
                "has no 'missing'",
                "importer broken",
            ],
        ),
        ("import notes --help", 0, ["FILE", "--first", "--into", "--jsonl"]),
        ("import nothing notes.txt --into mine", 2, ["importer nothing", "returned NoneType"]),
        ("import notes gone.txt --into mine", 2, ["note_importer.py:", "gone.txt"]),
        ("import broken notes.txt --into mine", 2, ["No such command 'broken'"]),
    ],
)
def test_importers_help_and_errors(line: str, code: int, texts: list[str]) -> None:
    result, output = run(line)
    assert result == code, output
    assert [text for text in texts if text not in " ".join(output.split())] == []
