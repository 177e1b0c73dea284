"""The documentation: its consoles are executed, its options exist, the site builds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from lhkit.cli import ExitCode
from lhkit.cli.frame.project import KEYS
from lhkit.settings import Settings, load_settings
from tests.children import search_paths
from tests.docs.command_lines import lhkit_lines, read_line
from tests.docs.pages import ROOT, blocks, files, missing, run, steps
from tests.node_servers import npm_environment
from tests.rows import check_rows

DOCS = ROOT / "docs"
MORE_PUBLIC = ("reports", "scripted", "settings", "sft")
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("servers/*.md")])
EVERYWHERE = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
ELSEWHERE = {
    "own-tools.md",  # test_own_tools.py
}
"""Pages whose files and commands have a test of their own."""
TRANSLATED = {
    "approvals",
    "ci",
    "compare",
    "faq",
    "glossary",
    "own-tools",
    "scenarios",
    "scoring",
    "servers",
}
"""Pages with a Korean one that has the same blocks, so that they are run once."""
SAME = {f"{name}.ko.md" for name in TRANSLATED}
HERE = [page for page in PAGES if page.name not in ELSEWHERE | SAME]


@check_rows("name", sorted(TRANSLATED))
def test_korean_page_has_the_blocks_and_headings_of_the_english_one(name: str) -> None:
    english, korean = DOCS / f"{name}.md", DOCS / f"{name}.ko.md"
    assert blocks(korean) == blocks(english)
    texts = [
        re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S) for page in (english, korean)
    ]
    titles = [re.findall(r"^(#+) (.*)$", text, re.M) for text in texts]
    assert [level for level, _ in titles[0]] == [level for level, _ in titles[1]]
    for (_, title), (_, korean_title) in zip(titles[0][1:], titles[1][1:], strict=True):
        assert korean_title.endswith(f" {{#{anchor_of(title)}}}"), (
            "links to a place lead to it in both languages"
        )
    rows = [len(re.findall(r"^\|", text, re.M)) for text in texts]
    assert rows[0] == rows[1]


def commands_of(page: Path) -> list[str]:
    return [line for block in blocks(page) for line in lhkit_lines(block.text)]


def marked(page: Path) -> ParameterSet:
    """Return a page as a parameter.

    One that fetches from npm, asks vLLM or has very many commands is for the night.
    """
    commands = [step.command for step in steps(page)]
    is_long = len(commands) > 12 or any(
        command.startswith(("npm ", "lhkit serve ")) for command in commands
    )
    return pytest.param(
        page, id=page.name, marks=[pytest.mark.nightly if is_long else pytest.mark.slow]
    )


PUBLIC = {"lhkit", *(f"lhkit.{name}" for name in ("notebook", "testing", *MORE_PUBLIC))}
IMPORTED = re.compile(r"^\s*\"?(?:from (lhkit[\w.]*) import|import (lhkit[\w.]*))", re.MULTILINE)
DOCUMENTED = re.compile(r"^::: (lhkit[\w.]*)\.\w+$", re.MULTILINE)


COMMANDS = [(page.name, line) for page in EVERYWHERE for line in commands_of(page)]


@pytest.mark.timeout(900)  # a page has up to 16 commands, of seconds each on a busy machine
@pytest.mark.parametrize("page", [marked(page) for page in HERE if steps(page)])
def test_page_console_prints_what_the_page_shows(
    page: Path, tmp_path: Path, commands: Path
) -> None:
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "LHKIT_CACHE_DIR": str(load_settings().cache_dir),
        **npm_environment(),
    }
    console = steps(page)
    done = run([step.command for step in console], tmp_path, environment, commands)
    assert len(done) == len(console)
    after = [step.command for step in console[1:]] + [""]
    for step, came, following in zip(console, done, after, strict=True):
        assert missing(step.shown, came.output) is None, (step.command, came.output)
        assert came.code == 0 or following == "echo $?", (step.command, came.output)


@pytest.mark.longer
@check_rows(("page", "line"), COMMANDS, ids=[f"{p}: {line}" for p, line in COMMANDS])
def test_page_command_is_accepted_by_the_parser(page: str, line: str) -> None:
    assert read_line(line) or line == "lhkit --help", page


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_page_outside_the_site_links_to_existing_files(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_llms_txt_names_every_page() -> None:
    linked = re.findall(r"\]\((\S+\.md)\)", (DOCS / "llms.txt").read_text(encoding="utf-8"))
    nav = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(linked) == sorted(nav)


def test_configuration_page_has_every_variable_key_and_exit_code() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `?([\w]+)`? \|", page, re.MULTILINE)
    variables = {f"LHKIT_{name.upper()}" for name in Settings.model_fields}
    codes = {str(int(code)) for code in ExitCode}
    assert variables | codes | KEYS <= {*rows}


SERVERS = sorted(DOCS.glob("servers/*.md"))


@check_rows("page", SERVERS, ids=lambda page: page.name)
def test_server_page_has_the_form_of_the_others(page: Path) -> None:
    title, said, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    assert said.startswith(("Run here: ", "Not run "))
    assert said.count(". ") == 0
    commands = "\n".join(commands_of(page))
    assert re.search(r"lhkit doctor --base-url \S+", commands)
    assert re.search(r"lhkit eval .*--base-url \S+", commands)
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[-1] == "Known traps"
    rows = re.findall(r"^\| ([\w ]+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == ["dialect", "constraints", "in records"]
    assert f"(servers/{page.name})" in (DOCS / "servers.md").read_text(encoding="utf-8")


@check_rows("page", PAGES, ids=lambda page: page.name)
def test_page_links_to_existing_pages_and_headings(page: Path) -> None:
    broken = []
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    for link, anchor in re.findall(r"\]\(((?!https?:)[^)#\s]*)#?([^)\s]*)\)", text):
        linked = page.parent / link if link else page
        if not linked.exists():
            broken.append(link)
        elif anchor and linked.suffix == ".md" and anchor not in anchors(linked):
            broken.append(f"{link}#{anchor}")
    assert broken == []


def anchors(page: Path) -> set[str]:
    text = page.read_text("utf-8")
    titles = re.findall(r"^#+ (.*?)(?: \{#([\w-]+)\})?$", text, re.M)
    return {given or anchor_of(title) for title, given in titles}


def anchor_of(title: str) -> str:
    plain = re.sub(r"[^\w\s-]", "", title.replace("`", ""))
    return re.sub(r"[\s-]+", "-", plain.strip().lower())


@pytest.mark.nightly
def test_site_builds_without_a_warning() -> None:
    built = subprocess.run(
        [sys.executable, DOCS / "build.py"],
        cwd=ROOT,
        env={**search_paths(), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    site = ROOT / "site"
    for language in (site, site / "ko"):
        assert '"location":"own-tools.html' in (language / "search.js").read_text(encoding="utf-8")
    assert "빠른 시작" in (site / "ko" / "quickstart.html").read_text(encoding="utf-8")
    assert "--fail-under" in (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert "LHKIT_LOCALE" in (site / "configuration.html").read_text(encoding="utf-8")
    assert "정답 기록" in (site / "ko" / "glossary.html").read_text(encoding="utf-8")
    assert "(scenarios.html)" in (site / "llms.txt").read_text(encoding="utf-8")
    schema = ROOT / "lhkit" / "harness" / "scenarios" / "scenario.schema.json"
    written = site / "scenario.schema.json"
    assert written.read_text(encoding="utf-8") == schema.read_text(encoding="utf-8")


READ = [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("notebooks/*.ipynb")]


@check_rows("page", READ, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_imports_public_modules_only(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    imported = {name for match in IMPORTED.findall(text) for name in match if name}
    if page.name != "CHANGELOG.md":
        assert imported <= PUBLIC
        assert {*DOCUMENTED.findall(text)} <= PUBLIC
