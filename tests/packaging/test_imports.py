"""Import time: commands and the package load no heavy libraries that they do not use."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import lhkit
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.models.client.request import OPENAI
from lhkit.models.dialects import DIALECTS
from lhkit.models.names import DIALECT_NAMES, EMBEDDED_NAMES, REFERENCE_NAMES
from lhkit.models.serving.gemma import BASE, TUNED
from tests.children import search_paths

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

HEAVY = ("torch", "vllm", "transformers", "pandas", "scipy", "numpy", "altair", "aiohttp")
SLOW = "rfc3987_syntax"
"""JupyterLab brings it, `make venv` does not: it compiles a grammar for seconds, for a format that
lhkit does not use."""
STAND_IN = """
RFC3987_SYNTAX_TERMS = ["iri"]
def is_valid_syntax(rule, text): return rule == "iri" and "://" in text
"""

COMMAND = "import lhkit.__main__ as entry; entry.main()"

SCENARIO = """
- id: one
  ac: AC-5
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: 내 습관은?, expect: {calls: [{tool: list_habits}]}}]
"""


def with_slow(folder: Path) -> dict[str, str]:
    """Return an environment in which `SLOW` can be imported, from this folder."""
    (folder / f"{SLOW}.py").write_text(STAND_IN)
    paths = search_paths()
    folders = filter(None, (str(folder), paths.get("PYTHONPATH")))
    return {**paths, "PYTHONPATH": os.pathsep.join(folders)}


def loaded_by(
    code: str, *args: str, folder: Path, env: Mapping[str, str] | None = None
) -> set[str]:
    """Run `code` in a new Python and return the modules that are loaded at its exit."""
    report = folder / "modules"
    line = (
        "import atexit, sys; from pathlib import Path; "
        f"atexit.register(lambda: Path({str(report)!r}).write_text(' '.join(sys.modules)))\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", line, *args], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(report.read_text().split())


def find_modules() -> dict[str, Path]:
    """Return the files of lhkit by module name."""
    files = {}
    for file in (ROOT / "lhkit").rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return files


@cache
def imported_names(file: Path) -> list[str]:
    """Return all modules and names that a file imports, including inside functions."""
    named: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                named += [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                named += [module, *(f"{module}.{alias.name}" for alias in names)]
            case _:
                pass
    return named


def reachable_modules(start: str, files: dict[str, Path]) -> set[str]:
    """Return all modules of lhkit that a module imports, directly or indirectly."""
    reached, waiting = {start}, [start]
    while waiting:
        named = imported_names(files[waiting.pop()])
        new = {name for name in named if name in files and name != "lhkit"} - reached
        reached |= new
        waiting += new
    return reached


STEPS = """
import contextlib, io, json, sys
loaded = []
for code, args in json.loads(sys.argv[1]):
    sys.argv = ["lhkit", *args]
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(shown):
        try:
            exec(code, {})
        except SystemExit as left:
            assert not left.code, shown.getvalue()
    loaded.append([*sys.modules])
json.dump(loaded, sys.stdout)
"""


def test_commands_and_panel_load_no_heavy_library(tmp_path: Path) -> None:
    """In one process, in which each step may load more than the one before."""
    file = tmp_path / "one.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    gold = ("eval", str(file), "--model", "gold", "--runs-dir", str(tmp_path / "runs"))
    steps = (
        ("import lhkit", ()),
        (COMMAND, ("--help",)),
        (COMMAND, ("eval", "--help")),
        (COMMAND, gold),
        (COMMAND, ("compare", "--help")),
        ("from lhkit.notebook import demo_panel; demo_panel()", ()),
    )
    done = subprocess.run(
        [sys.executable, "-c", STEPS, json.dumps(steps)],
        env=with_slow(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    heavy = {*HEAVY, SLOW}
    after = [frozenset(names) for names in json.loads(done.stdout)]
    assert [sorted(names & heavy) for names in after] == [[]] * len(steps)
    _, usage, eval_usage, evaluated, *_ = after
    assert usage.isdisjoint({"pydantic", "lhkit.settings"})
    assert eval_usage.isdisjoint({"lhkit.app", "jsonschema"})
    assert "lhkit.lifehelper.dates.english" not in evaluated
    assert "lhkit.lifehelper.dates.korean" in evaluated  # of a Korean scenario


OTHER_TOOLS = """
import asyncio
import sys

sys.modules |= dict.fromkeys(("lhkit.lifehelper", "lhkit.lifehelper.dates"))  # importing them fails

import lhkit
from lhkit.harness.authoring.from_chat import scenario_from_chat
from lhkit.conversation.messages import ModelMessage, UserMessage

tools = lhkit.ToolRegistry()
entry = {"id": "a", "ac": "AC-1", "locale": "ko", "turns": [{"user": "안녕"}]}
entry["world"] = {"now": "2026-06-15T09:00:00+09:00", "days": [{"id": {"date": "monthend-1m"}}]}
scenarios = [lhkit.Scenario.from_data(entry)]
run = asyncio.run(
    lhkit.replay(scenarios, lhkit.gold_model, toolset=tools, progress=False, repeats=2)
)
assert not {"numpy", "scipy"} & set(sys.modules)  # while a run is timed
assert run.summary().total.passed == 2
assert "<code>AC-1</code>" in run._repr_html_()
messages = [UserMessage(text="안녕"), ModelMessage(text="네")]
options = {"destructive": (), "locale": "ko", "scenario_id": "a"}
print(scenario_from_chat(messages, initial_state={}, final_state={}, **options))
"""


def test_harness_needs_no_life_helper() -> None:
    run = subprocess.run(
        [sys.executable, "-c", OTHER_TOOLS], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "ac:" not in run.stdout


EXTRAS = {
    "eval": (
        "pandas",
        "scipy",
        "numpy",
        "jinja2",
        "markupsafe",
        "altair",
        "opentelemetry",
    ),
    "mcp": ("mcp", "httpx2"),
    "notebook": ("anywidget", "ipywidgets"),
}
WITHOUT = """
import contextlib, io, json, sys, traceback
missing, rows = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(missing))
ended = []
for code, args in rows:
    sys.argv, shown, status = ["lhkit", *args.split()], io.StringIO(), 0
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()):
        try:
            exec(code, {})
        except SystemExit as left:
            status = left.code
        except Exception:
            traceback.print_exc()
            status = 1
    ended.append((status or 0, shown.getvalue()))
json.dump(ended, sys.stdout)
"""
PANEL = "from lhkit.notebook import demo_panel"
FRAME = "import lhkit; lhkit.Run.load('runs/a').turns"


ROWS = [
    ("", COMMAND, "eval one.yaml --model gold --name a"),
    ("", COMMAND, "report runs/a --markdown a.md --junit a.xml"),
    ("eval", COMMAND, "eval one.yaml --model gold --repeats 2"),
    ("eval", COMMAND, "eval one.yaml --model gold --name c --baseline runs/a"),
    ("eval", COMMAND, "eval one.yaml --model gold --name c --html c.html"),
    ("eval", COMMAND, "compare runs/a runs/a"),
    ("eval", COMMAND, "compare runs/a runs/a --max-regressions 0"),
    ("eval", COMMAND, "report --history runs"),
    ("eval", COMMAND, "export runs/a --otel spans.jsonl"),
    ("eval", COMMAND, "report runs/a"),
    ("eval", FRAME, ""),
    ("mcp", COMMAND, "mcp serve"),
    ("mcp", COMMAND, "prompt --toolset mcp:nothing"),
    ("notebook", PANEL, ""),
]


def test_missing_extras_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process, which lacks all of them."""
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    (tmp_path / "one.yaml").write_text(SCENARIO, encoding="utf-8")
    missing = [name for names in EXTRAS.values() for name in names]
    given = json.dumps([missing, [(code, args) for _, code, args in ROWS]])
    command = [sys.executable, "-c", WITHOUT, given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong = []
    for (extra, code, args), (status, stderr) in zip(ROWS, json.loads(done.stdout), strict=True):
        advice = f"is not installed. Install it with `pip install 'lhkit[{extra}]'`."
        expected = (0 if not extra else 2 if args else 1, bool(extra))
        if (status, advice in stderr) != expected:
            wrong.append((code, args, status, stderr))
    assert wrong == []


CLIENT = """
import importlib
import pkgutil
import lhkit.models.client as client
for module in pkgutil.walk_packages(client.__path__, "lhkit.models.client."):
    importlib.import_module(module.name)
"""


@pytest.mark.parametrize(
    ("code", "drivers"),
    [
        ("import lhkit.toolset", ("lhkit.chat.controller", "lhkit.harness", "lhkit.notebook")),
        (CLIENT, ("lhkit.confirm", "lhkit.tools", "lhkit.chat", "lhkit.harness", "jsonschema")),
    ],
    ids=["toolset", "client"],
)
def test_values_load_no_drivers(code: str, drivers: tuple[str, ...], tmp_path: Path) -> None:
    loaded = loaded_by(code, folder=tmp_path)
    assert "lhkit.models.client.vllm" in loaded or "lhkit.toolset" in loaded
    assert not [name for name in loaded if name.startswith(drivers)]


def test_json_schema_iri_check_is_loaded_on_use(tmp_path: Path) -> None:
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
    assert SLOW in loaded_by(code, folder=tmp_path, env=with_slow(tmp_path))


def test_cli_report_and_compare_import_no_models() -> None:
    files = find_modules()
    commands = ("lhkit.cli.report", "lhkit.cli.compare")
    reached = {name for command in commands for name in reachable_modules(command, files)}
    packages = {name.split(".")[1] for name in reached}
    assert packages.isdisjoint({"lifehelper", "app", "notebook"})
    rooms = {name.split(".")[2] for name in reached if name.startswith("lhkit.models.")}
    assert rooms.isdisjoint({"client", "dialects", "recorded", "serving", "weights"})


def test_names_of_options_are_those_of_what_they_name() -> None:
    assert (*DIALECTS, OPENAI) == DIALECT_NAMES
    assert tuple(REFERENCE_MODELS) == REFERENCE_NAMES
    assert (TUNED, BASE) == EMBEDDED_NAMES


def test_lhkit_does_not_import_evals() -> None:
    files = find_modules().values()
    imported = {name.split(".")[0] for file in files for name in imported_names(file)}
    assert "lhkit" in imported
    assert "evals" not in imported


def test_cli_rescore_imports_no_server() -> None:
    reached = reachable_modules("lhkit.cli.rescore", find_modules())
    assert reached.isdisjoint(
        {
            "lhkit.app",
            "lhkit.models.client.transport",
            "lhkit.models.serving.server",
            "lhkit.models.weights.weights",
        }
    )


def test_type_checkers_read_the_public_names_of_the_table() -> None:
    """The two lists in `lhkit/__init__.py` agree; a type checker needs a static one."""
    tree = ast.parse((ROOT / "lhkit" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    static = {
        alias.name: each.module
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert static == {name: f"lhkit.{module}" for name, module in lhkit._MODULES.items()}
