"""Imports point one way, and no door loads what it does not use."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

LIGHT = """
import sys
import lhkit
heavy = {"torch", "vllm", "pandas", "transformers", "aiohttp", "scipy"} & set(sys.modules)
print(sorted(heavy))
"""

HEAVY = ("torch", "vllm", "transformers", "pandas", "scipy", "numpy", "altair", "aiohttp")
SLOW = "rfc3987_syntax"  # compiles a grammar for seconds, for a format that no schema of ours has

COMMAND = "import lhkit.__main__ as entry; entry.main()"

SCENARIO = """
- id: one
  ac: AC-5
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: 내 습관은?, expect: {calls: [{tool: list_habits}]}}]
"""


def loaded_by(code: str, *args: str, folder: Path) -> set[str]:
    """Return the modules that a new Python has loaded when it ends after `code`."""
    told = folder / "modules"
    line = (
        "import atexit, sys; from pathlib import Path; "
        f"atexit.register(lambda: Path({str(told)!r}).write_text(' '.join(sys.modules)))\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", line, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(told.read_text().split())


def modules() -> dict[str, Path]:
    """Return the files of our modules, packages under their own name."""
    found = {}
    for file in (ROOT / "lhkit").rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def named_in(file: Path) -> list[str]:
    """Return all modules, and names of modules, that a file imports, inside of functions too."""
    named: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                named += [each.name for each in names]
            case ast.ImportFrom(module=str(module), names=names):
                named += [module, *(f"{module}.{each.name}" for each in names)]
            case _:
                pass
    return named


def reached_from(start: str, files: dict[str, Path]) -> set[str]:
    """Return all modules of ours that a module can import, those inside of functions as well."""
    reached, waiting = {start}, [start]
    while waiting:
        named = named_in(files[waiting.pop()])
        new = {each for each in named if each in files and each != "lhkit"} - reached
        reached |= new
        waiting += new
    return reached


def test_the_import_contracts_hold() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.promise("start.light_import")
def test_importing_lhkit_loads_nothing_heavy() -> None:
    run = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize("args", [["--help"], ["eval", "--help"], ["compare", "--help"]])
def test_help_loads_no_library_that_does_the_work(args: list[str], tmp_path: Path) -> None:
    loaded = loaded_by(COMMAND, *args, folder=tmp_path)
    assert loaded.isdisjoint({*HEAVY, SLOW})
    assert args != ["--help"] or loaded.isdisjoint({"lhkit.app", "jsonschema"})


def test_a_gold_eval_of_one_scenario_loads_neither_numpy_nor_a_client(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    args = ("eval", str(file), "--model", "gold", "--runs-dir", str(tmp_path / "runs"))
    assert loaded_by(COMMAND, *args, folder=tmp_path).isdisjoint({*HEAVY, SLOW})


def test_a_demo_panel_loads_neither_numpy_nor_a_client(tmp_path: Path) -> None:
    code = "from lhkit.notebook import demo_panel; demo_panel()"
    loaded = loaded_by(code, folder=tmp_path)
    assert loaded.isdisjoint({*HEAVY, SLOW})


def test_json_schema_import_keeps_iri_checks_of_jsonschema(tmp_path: Path) -> None:
    code = """
import sys
import lhkit.tools.json_schema
assert "rfc3987_syntax" not in sys.modules
from jsonschema import Draft202012Validator, FormatChecker
checker = FormatChecker()
assert checker.conforms("https://example.org/습관", "iri") and not checker.conforms("::", "iri")
from rfc3987_syntax import RFC3987_SYNTAX_TERMS
assert RFC3987_SYNTAX_TERMS
"""
    assert SLOW in loaded_by(code, folder=tmp_path)


def test_commands_that_read_runs_reach_no_model() -> None:
    files = modules()
    reached = reached_from("lhkit.cli.report", files) | reached_from("lhkit.cli.compare", files)
    rooms = {each.split(".")[1] for each in reached}
    assert rooms.isdisjoint({"models", "lifehelper", "app", "notebook"})


def test_the_package_knows_no_evals() -> None:
    imported = {each.split(".")[0] for file in modules().values() for each in named_in(file)}
    assert "lhkit" in imported
    assert "evals" not in imported


def test_rescoring_needs_tools_and_scenarios_and_no_server() -> None:
    reached = reached_from("lhkit.cli.rescore", modules())
    assert reached.isdisjoint(
        {"lhkit.app", "lhkit.models.transport", "lhkit.models.server", "lhkit.models.weights"}
    )
