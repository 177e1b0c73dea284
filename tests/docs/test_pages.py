"""The pages of docs/ do what stands there, and name no option that lhkit does not have."""

import re
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from lhkit.settings import load_settings
from tests.docs.command_lines import lhkit_lines, read_line
from tests.docs.pages import ROOT, blocks, files, missing, run, steps
from tests.node_servers import npm_environment

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
EVERYWHERE = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
ELSEWHERE = {
    "own-tools.md",  # test_own_tools.py
}
"""Pages whose files and commands have a test of their own."""
HERE = [page for page in PAGES if page.name not in ELSEWHERE]


def name_of(page: Path) -> str:
    return page.name


def commands_of(page: Path) -> list[str]:
    return [line for block in blocks(page) for line in lhkit_lines(block.text)]


def marked(page: Path) -> ParameterSet:
    """Return a page as a parameter; one that fetches from npm is for the night."""
    is_fetching = any(step.command.startswith("npm ") for step in steps(page))
    return pytest.param(
        page, id=page.name, marks=[pytest.mark.nightly if is_fetching else pytest.mark.slow]
    )


COMMANDS = [(page.name, line) for page in EVERYWHERE for line in commands_of(page)]


@pytest.mark.promise("docs.run")
@pytest.mark.parametrize("page", [marked(page) for page in HERE if steps(page)])
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for shared in ("datasets", "evals"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    environment = {
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "LHKIT_CACHE_DIR": str(load_settings().cache_dir),
        **npm_environment(),
    }
    said = steps(page)
    done = run([step.command for step in said], tmp_path, environment)
    assert len(done) == len(said)
    after = [step.command for step in said[1:]] + [""]
    for step, came, following in zip(said, done, after, strict=True):
        assert missing(step.shown, came.output) is None, (step.command, came.output)
        assert came.code == 0 or following == "echo $?", (step.command, came.output)


@pytest.mark.promise("docs.options")
@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{p}: {line}" for p, line in COMMANDS])
def test_a_command_of_a_page_is_taken_by_the_parser(page: str, line: str) -> None:
    assert read_line(line) or line == "lhkit --help", page


@pytest.mark.parametrize("page", EVERYWHERE, ids=name_of)
def test_a_link_of_a_page_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", prose)
    assert [each for each in links if not (page.parent / each).exists()] == []
    places = re.findall(r"\]\(([\w./-]*)#([^)]+)\)", prose)
    lost = [(to, name) for to, name in places if name not in headings(page.parent / to, page)]
    assert lost == []


def headings(target: Path, page: Path) -> set[str]:
    """Return the names that a link may go to, as they are made of the headings of a page."""
    text = (page if target.is_dir() else target).read_text(encoding="utf-8")
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in found}
