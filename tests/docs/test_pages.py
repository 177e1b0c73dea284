"""The pages of docs/ do what stands there, and name no option that lhkit does not have."""

import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lhkit.settings import load_settings
from tests.children import search_paths
from tests.docs.command_lines import lhkit_lines, read_line
from tests.docs.pages import ROOT, Step, blocks, files, missing, run, steps
from tests.node_servers import npm_environment

DOCS = ROOT / "docs"
MANY = re.DOTALL | re.MULTILINE
PAGES = sorted(DOCS.glob("*.md"))
EVERYWHERE = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
ELSEWHERE = {
    "own-tools.md",  # tests/house/test_own_tools.py
}
"""Pages whose files and commands have a test of their own."""
HERE = [page for page in PAGES if page.name not in ELSEWHERE]


def name_of(page: Path) -> str:
    return page.name


def commands_of(page: Path) -> list[str]:
    return [line for block in blocks(page) for line in lhkit_lines(block.text)]


COMMANDS = [(page.name, line) for page in EVERYWHERE for line in commands_of(page)]


@pytest.mark.promise("docs.run")
@pytest.mark.parametrize("page", [page for page in HERE if steps(page)], ids=name_of)
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


@pytest.mark.parametrize("page", HERE, ids=name_of)
def test_what_is_not_run_says_what_it_needs(page: Path) -> None:
    unmarked = [
        block.text
        for block in blocks(page)
        if block.language in {"sh", "bash"} and not block.text.startswith("# needs ")
    ]
    assert unmarked == []


@pytest.mark.parametrize("page", HERE, ids=name_of)
def test_what_is_not_run_is_bash_and_so_is_the_job_in_it(page: Path) -> None:
    shown = [block.text for block in blocks(page) if block.language in {"sh", "bash"}]
    jobs = [job for text in shown for _, job in re.findall(r"<<'(\w+)'\n(.*?)^\1$", text, MANY)]
    for text in (*shown, *jobs):
        read = subprocess.run(
            ["/bin/bash", "-n"], input=text, capture_output=True, text=True, check=False
        )
        assert (read.returncode, read.stderr) == (0, ""), text


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


def test_the_index_lists_every_page() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(page.name for page in PAGES if page.name != "README.md")


def test_the_job_for_ci_is_a_workflow_that_asks_what_the_page_explains() -> None:
    job = YAML(typ="safe").load(files(DOCS / "ci-gate.md")["eval.yml"])
    ran = "\n".join(step["run"] for step in job["jobs"]["eval"]["steps"] if "run" in step)
    called = [read_line(line) for line in lhkit_lines(ran)]
    assert called == ["lint", "eval", "report", "report"]


def test_the_cluster_of_the_page_holds_the_replicas_that_its_command_asks_for() -> None:
    page = DOCS / "scale-out.md"
    cluster = YAML(typ="safe").load(files(page)["raycluster.yaml"])
    head, (workers,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    (one,), (other,) = (each["template"]["spec"]["containers"] for each in (head, workers))
    assert one["image"] == other["image"]
    told = page.read_text(encoding="utf-8")
    cards = other["resources"]["limits"]["nvidia.com/gpu"]
    assert f"--ray auto --replicas {workers['replicas']} --gpus-per-replica {cards} " in told
    assert f"-l ray.io/cluster={cluster['metadata']['name']}," in told
    locked = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8")
    assert f"\nray=={cluster['spec']['rayVersion']}\n" in locked


@pytest.mark.parametrize(
    ("shown", "lost"),
    [
        (("one", "two"), None),
        (("two", "one"), "one"),
        (("o … e t", "wo"), None),
        (("o … e x", "one"), "o … e x"),
        (("on…e two",), None),
        (("three",), "three"),
    ],
)
def test_a_line_that_is_not_in_the_output_is_noticed(
    shown: tuple[str, ...], lost: str | None
) -> None:
    assert missing(shown, "one   two") == lost


def test_a_child_finds_the_modules_that_the_tests_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "only_here.py").write_text("print('found')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "own")
    (done,) = run(["python -c 'import only_here'"], tmp_path.parent, {})
    assert (done.output.strip(), done.code) == ("found", 0)
    monkeypatch.delenv("PYTHONPATH")
    assert set(search_paths()) == {"PATH"}


def test_a_console_is_commands_with_what_they_show(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ false\n$ echo $?\n1\n\n$ a=2 \\\n  ; echo $a\n2\n```\n", "utf-8")
    assert steps(page)[1] == Step(command="echo $?", shown=("1",))
    done = run([step.command for step in steps(page)], tmp_path, {})
    assert [(each.output.strip(), each.code) for each in done] == [("", 1), ("1", 0), ("2", 0)]
