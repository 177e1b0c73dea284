"""`source_sha256`: which files count as the code of a toolset."""

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from lhkit.mcp.launch import Launch
from lhkit.mcp.toolset import McpToolset
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareToolset, limit_tokens, load, source_sha256

TOOLS = """
import lhkit
import near

tools = lhkit.ToolRegistry()


@tools.tool()
def look() -> dict:
    "Look."
    from later import late
    return {"seen": near.NEAR + late()}
"""
FILES = {
    "kitchen.py": TOOLS,
    "near.py": "from shelf import inner\nNEAR = inner.N\n",
    "later.py": "def late(): return 1\n",
    "shelf/__init__.py": "",
    "shelf/inner.py": "from . import other\nN = other.N\n",
    "shelf/other.py": "N = 1\n",
    "unused.py": "",
    "conftest.py": "",
    "notes.txt": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def fresh(reference: str) -> str:
    """Return the hash as another process would: nothing is imported so far."""
    for name in [*sys.modules]:
        if name.split(".")[0] in {"near", "later", "shelf", "house"}:
            del sys.modules[name]
    importlib.invalidate_caches()
    return source_sha256(load(reference))


@pytest.mark.parametrize("name", FILES)
def test_source_changes_with_the_files_that_a_toolset_imports(folder: Path, name: str) -> None:
    reference = f"{folder}/kitchen.py:tools"
    before = fresh(reference)
    assert before == fresh(reference) != ""
    (folder / name).write_text(f"{FILES[name]}\n# changed\n", encoding="utf-8")
    is_code = name not in {"unused.py", "conftest.py", "notes.txt"}
    assert (fresh(reference) != before) is is_code


@pytest.mark.parametrize(
    ("name", "is_code"),
    [("tools.py", True), ("sub/deep.py", True), ("__init__.py", True), ("sub/unused.py", False)],
)
def test_source_of_a_module_is_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, is_code: bool
) -> None:
    house = tmp_path / "house"
    (house / "sub").mkdir(parents=True)
    for file in ("__init__.py", "sub/__init__.py", "sub/deep.py", "sub/unused.py"):
        (house / file).write_text("", encoding="utf-8")
    text = "import lhkit\nfrom .sub.deep import *\ntools = lhkit.ToolRegistry()\n"
    (house / "tools.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = fresh("house.tools:tools")
    with (house / name).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert (fresh("house.tools:tools") != before) is is_code


@pytest.mark.parametrize("name", ["near.py", "shelf/inner.py"])
@pytest.mark.parametrize("is_installed", [False, True])
def test_source_of_a_package_has_the_packages_of_its_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, is_installed: bool
) -> None:
    root = tmp_path / "site-packages" if is_installed else tmp_path
    for file, text in {
        "house/__init__.py": "",
        "house/tools.py": "import lhkit, near\nfrom shelf.inner import *\n"
        "tools = lhkit.ToolRegistry()\n",
        "near.py": "",
        "shelf/__init__.py": "",
        "shelf/inner.py": "",
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(root)
    monkeypatch.chdir(root)
    before = fresh("house.tools:tools")
    (root / name).write_text("# changed\n", encoding="utf-8")
    assert (fresh("house.tools:tools") != before) is not is_installed


@pytest.mark.parametrize(
    "line",
    [
        "importlib.import_module('unused')",
        "from importlib import import_module as load; import_module('unused')",
        "import_module(name='x') if False else __import__('unused')",
    ],
)
def test_source_has_modules_that_are_imported_by_a_call(folder: Path, line: str) -> None:
    reference = f"{folder}/kitchen.py:tools"
    text = f"{TOOLS}\nimport importlib\n\ndef later():\n    {line}\n"
    (folder / "kitchen.py").write_text(text, encoding="utf-8")
    before = fresh(reference)
    (folder / "unused.py").write_text("# changed\n", encoding="utf-8")
    assert fresh(reference) != before


@pytest.mark.parametrize(
    "statement",
    [
        "try: import unused\nfinally: pass",
        "try: pass\nexcept ValueError: import unused",
        "try: pass\nexcept* ValueError: import unused",
        "try: pass\nexcept ValueError: pass\nelse: import unused",
        "try: pass\nfinally: import unused",
        "if False: pass\nelif True: import unused",
        "while False: import unused",
        "for _ in (): pass\nelse: from unused import N",
        "with open('x'): import unused",
        "match 1:\n    case 1: import unused",
        "class A:\n    def f(self):\n        async def g(): import unused",
    ],
)
def test_source_has_modules_that_are_imported_in_a_statement(folder: Path, statement: str) -> None:
    reference = f"{folder}/kitchen.py:tools"
    text = f"{TOOLS}\ndef later():\n{textwrap.indent(statement, '    ')}\n"
    (folder / "kitchen.py").write_text(text, encoding="utf-8")
    before = fresh(reference)
    (folder / "unused.py").write_text("# changed\n", encoding="utf-8")
    assert fresh(reference) != before


def test_source_has_modules_of_a_package_that_are_imported_by_a_call(folder: Path) -> None:
    text = "import importlib\nN = importlib.import_module('.other', __package__).N\n"
    (folder / "shelf" / "inner.py").write_text(text, encoding="utf-8")
    before = fresh(f"{folder}/kitchen.py:tools")
    (folder / "shelf" / "other.py").write_text("N = 2\n", encoding="utf-8")
    assert fresh(f"{folder}/kitchen.py:tools") != before


def test_source_is_the_same_with_other_line_ends(folder: Path) -> None:
    before = fresh(f"{folder}/kitchen.py:tools")
    for file in folder.rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert fresh(f"{folder}/kitchen.py:tools") == before


@pytest.mark.parametrize("name", ["kitchen.py", "near.py"])
def test_source_of_imported_code_is_that_which_runs(
    folder: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    reference = f"{folder}/kitchen.py:tools"
    before = fresh(reference)
    toolset = load(reference)  # of the same process
    assert source_sha256(toolset) == before
    (folder / name).write_text(FILES[name] + "# changed\n", encoding="utf-8")
    assert source_sha256(toolset) == before  # the code that was loaded still runs
    assert f"Note: {name} was edited after it was imported" in caplog.text
    assert (source_sha256(load(reference)) != before) is (name == "kitchen.py")  # it is read again
    assert fresh(reference) != before


def test_source_is_the_same_in_another_folder(folder: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other")
    folder.rename(other / "moved")
    moved = fresh(f"{other}/moved/kitchen.py:tools")
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    assert fresh(f"{folder}/kitchen.py:tools") == moved


def test_source_of_two_files_of_one_name_differs(folder: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other") / "kitchen.py"
    other.write_text("import lhkit\ntools = lhkit.ToolRegistry()\n", encoding="utf-8")
    first, second = load(f"{folder}/kitchen.py:tools"), load(f"{other}:tools")
    assert source_sha256(first) != source_sha256(second)


def test_source_of_the_shipped_toolset_is_known() -> None:
    toolset = load("life-helper")
    assert source_sha256(toolset) == source_sha256(load("life-helper")) != ""
    assert source_sha256(limit_tokens(toolset, 9)) == source_sha256(toolset)


def seen() -> dict[str, int]:
    """Look."""
    return {}


def test_source_of_a_registry_is_that_of_its_functions() -> None:
    registry = ToolRegistry()
    registry.tool()(seen)
    assert source_sha256(BareToolset(registry=registry)) != ""


def test_source_is_unknown_where_the_code_runs_elsewhere() -> None:
    assert source_sha256(McpToolset(server=Launch(command="python", args=("x.py",)))) == ""
    namespace: dict[str, Any] = {"__name__": "made_up"}
    exec("class Made:\n    def open(self, world, locale): ...", namespace)  # noqa: S102 - as a notebook does
    assert source_sha256(namespace["Made"]()) == ""
    assert source_sha256(BareToolset(registry=ToolRegistry())) == ""


@pytest.mark.parametrize("how", ["file in a package", "path of the tools", "path of the user"])
def test_source_includes_modules_of_the_project_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    house, src = tmp_path / "house", tmp_path / "src"
    for folder in (house, src):
        folder.mkdir()
    (house / "__init__.py").write_text("", encoding="utf-8")
    name = "house.near" if how == "file in a package" else "near"
    near = (house if how == "file in a package" else src) / "near.py"
    near.write_text("N = 1\n", encoding="utf-8")
    path = f"import sys\nsys.path.insert(0, {str(src)!r})\n" if how == "path of the tools" else ""
    text = f"{path}import lhkit\nfrom {name} import N\ntools = lhkit.ToolRegistry()\n"
    (house / "tools.py").write_text(text, encoding="utf-8")
    for entry in (tmp_path, src) if how == "path of the user" else (tmp_path,):
        monkeypatch.syspath_prepend(str(entry))
    reference = f"{house}/tools.py:tools"
    before = fresh(reference)
    assert before == fresh(reference) != ""
    near.write_text("N = 2\n", encoding="utf-8")
    assert fresh(reference) != before
