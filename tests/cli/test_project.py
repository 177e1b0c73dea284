"""`lhkit.toml`: every command of a project takes it, an option wins, and one line says so."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.base.project_file import find_project_file
from lhkit.cli.chat.chat import ChatOptions
from lhkit.cli.doctor import DoctorOptions
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.export import ExportOptions
from lhkit.cli.frame.project import (
    ProjectKeys,
    find_project,
    language_lines,
    read_project,
    with_project,
)
from lhkit.cli.lint import LintOptions
from lhkit.cli.prompt import PromptOptions
from lhkit.cli.serve.serve_line import ServeOptions
from lhkit.settings import load_settings
from tests.cli.conftest import Run
from tests.rows import check_rows

SHOP = Path(lhkit.__file__).parent / "cli" / "init" / "project"
TOOLSET = 'toolset = "tools.py:toolset"'
ADDRESS = "http://127.0.0.1:9"
EVERYTHING = f"""
{TOOLSET}
scenarios = ["scenarios", "shopping.scenario.yaml"]
model = "org/model"
base_url = "{ADDRESS}"
dialect = "openai"
locale = "ko"
concurrency = 3
user = "hasty"
scores = "own.py:polite"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project, in which the commands run."""
    folder = tmp_path / "shop"
    (folder / "scenarios").mkdir(parents=True)
    for name in ("tools.py", "shopping.scenario.yaml"):
        shutil.copy(SHOP / name, folder)
    (folder / "lhkit.toml").write_text(TOOLSET)
    for name in ("LHKIT_BASE_URL", "LHKIT_LOCALE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"LHKIT_{name}_DIR", str(tmp_path / name))
    monkeypatch.chdir(folder)
    return folder


def taken(options: type[Any], **given: Any) -> dict[str, Any]:
    """Return the options of a command in the working directory, and those of the settings."""
    values, settings, _ = with_project(options, given, load_settings())
    return {**values, "in settings": (settings.locale, settings.base_url)}


@pytest.mark.longer
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["eval", "--model", "gold"], "lhkit.toml: toolset tools.py:toolset, scenarios ."),
        (["eval", ".", "--model", "gold"], "lhkit.toml: toolset tools.py:toolset"),
        (["lint"], "lhkit.toml: toolset tools.py:toolset, scenarios ."),
        (["mutate"], "lhkit.toml: toolset tools.py:toolset, scenarios ."),
    ],
)
def test_command_plays_the_project_and_says_so_first(run: Run, args: list[str], line: str) -> None:
    code, out, _ = run(*args)
    assert code == 0
    assert out.splitlines()[0] == line
    assert " 3/3 " in out or "3 scenarios" in out or "100.0%" in out


SCENARIOS = (
    '"."',
    '["."]',
    '"shopping.scenario.yaml"',
    '"*.scenario.yaml"',
    '["*.scenario.yaml", "."]',
    '"../shop"',
    '"my shop"',
    '"my shop/*"',
)


@pytest.mark.longer
@pytest.mark.parametrize("value", [*SCENARIOS, "absolute"])
def test_project_takes_files_folders_and_patterns_of_scenarios(
    project: Path, run: Run, value: str
) -> None:
    if "my shop" in value:
        (project / "my shop").mkdir()
        (project / "shopping.scenario.yaml").rename(project / "my shop/a.scenario.yaml")
    value = json.dumps(str(project)) if value == "absolute" else value
    (project / "lhkit.toml").write_text(f"{TOOLSET}\nscenarios = {value}")
    code, out, err = run("lint")
    assert (code, out.splitlines()[-1]) == (0, "3 scenarios read: 0 errors, 0 warnings"), err
    suite = project / "suite.toml"
    suite.write_text(f'scenarios = {value}\n[arms]\nmodels = ["gold"]')
    code, out, err = run("matrix", suite)
    assert code == 0, err
    assert "3/3" in out


@pytest.mark.usefixtures("project")
def test_prompt_shows_the_project_and_keeps_standard_output_for_it(run: Run) -> None:
    code, out, err = run("prompt")
    assert (code, err) == (0, "lhkit.toml: toolset tools.py:toolset\n")
    assert "You keep a shopping list" in out
    code, out, err = run("prompt", "--scenario", "add")
    assert (code, err) == (0, "lhkit.toml: toolset tools.py:toolset, scenarios .\n")
    assert "Please add 2 loaves of bread." in out


@pytest.mark.usefixtures("project")
def test_json_output_contains_no_line_about_the_project(run: Run) -> None:
    code, out, err = run("lint", "--json")
    assert (code, json.loads(out)) == (0, [])
    assert err.startswith("lhkit.toml: ")


@pytest.mark.longer
def test_rescore_takes_the_project(project: Path, run: Run) -> None:
    assert run("eval", "--model", "gold", "--name", "a")[0] == 0
    code, out, _ = run("rescore", "runs/a")
    assert code == 0
    assert out.splitlines()[0] == "lhkit.toml: toolset tools.py:toolset, scenarios ."
    assert (project / "runs" / "a-rescored").is_dir()


def test_matrix_takes_what_the_suite_leaves_out(project: Path, run: Run) -> None:
    (project / "evals").mkdir()
    suite = project / "evals" / "gold.toml"
    suite.write_text('[arms]\nmodels = ["gold"]')
    (project / "lhkit.toml").write_text(f'{TOOLSET}\nbase_url = "{ADDRESS}"\ndialect = "json"')
    code, out, _ = run("matrix", suite)
    assert code == 0, out
    assert out.splitlines()[0].startswith("lhkit.toml: toolset ")
    assert ADDRESS not in out
    assert "3/3" in out
    suite.write_text('toolset = "../none.py:x"\nscenarios = [".."]\n[arms]\nmodels = ["gold"]')
    code, out, err = run("matrix", suite)
    assert code == 2
    assert "none.py" in err


def test_export_has_scenarios_of_its_own(project: Path) -> None:
    (project / "lhkit.toml").write_text(f'{TOOLSET}\nscenarios = "shopping.scenario.yaml"')
    assert taken(ExportOptions).keys() == {"toolset", "in settings"}


def test_project_line_is_in_the_language_of_the_project(project: Path) -> None:
    (project / "lhkit.toml").write_text(f'{TOOLSET}\nlocale = "ko"')
    _, _, line = with_project(LintOptions, {}, load_settings())
    assert line == "lhkit.toml: 도구 모음 tools.py:toolset, 시나리오 ., 언어 ko"


def test_project_is_found_from_a_folder_below_it(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "scenarios")
    code, out, _ = run("lint")
    assert code == 0
    first, *_, last = out.splitlines()
    assert first == "../lhkit.toml: toolset ../tools.py:toolset, scenarios .."
    assert last.startswith("3 scenarios read")


@pytest.mark.longer
def test_project_of_the_named_scenarios_is_taken_from_elsewhere(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)
    for path in ("shop", "shop/shopping.scenario.yaml"):
        code, out, _ = run("lint", path)
        assert code == 0
        assert out.splitlines()[0] == "shop/lhkit.toml: toolset shop/tools.py:toolset"


def test_project_ends_at_the_root_of_its_repository(project: Path) -> None:
    below = project / "scenarios"
    assert find_project_file(below) == project / "lhkit.toml"
    (below / ".git").mkdir()
    assert find_project_file(below) is None
    (project / ".git").write_text("gitdir: elsewhere")  # of a worktree
    assert find_project_file(project) == project / "lhkit.toml"


def test_project_in_a_folder_for_everybody_is_not_taken_from_below(project: Path) -> None:
    project.chmod(0o777)
    assert find_project_file(project / "scenarios") is None
    assert find_project_file(project) == project / "lhkit.toml"


def test_project_in_python_names_modules_beside_the_file(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "tools.py").rename(project / "shop_tools.py")
    (project / "lhkit.toml").write_text('toolset = "shop_tools:toolset"')
    monkeypatch.chdir(project / "scenarios")
    assert run("lint")[0] == 0


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        (
            EvalOptions,
            {},
            {
                "toolset": "tools.py:toolset",
                "paths": (Path("scenarios"), Path("shopping.scenario.yaml")),
                "model": "org/model",
                "dialect": "openai",
                "concurrency": 3,
                "user": "hasty",
                "scores": ("own.py:polite",),
                "in settings": ("ko", ADDRESS),
            },
        ),
        (
            EvalOptions,
            {"paths": (Path("scenarios"),), "model": "b", "concurrency": 1, "user": "script"},
            {
                "toolset": "tools.py:toolset",
                "paths": (Path("scenarios"),),
                "model": "b",
                "dialect": "openai",
                "concurrency": 1,
                "user": "script",
                "scores": ("own.py:polite",),
                "in settings": ("ko", ADDRESS),
            },
        ),
        (  # gold has no server and no dialect
            EvalOptions,
            {"model": "gold", "toolset": "life-helper", "paths": (Path("x.yaml"),)},
            {
                "toolset": "life-helper",
                "paths": (Path("x.yaml"),),
                "model": "gold",
                "concurrency": 3,
                "user": "hasty",
                "scores": ("own.py:polite",),
                "in settings": ("ko", None),
            },
        ),
        (  # chooses the shipped scenarios
            EvalOptions,
            {"split": "test", "model": "gold"},
            {
                "split": "test",
                "model": "gold",
                "concurrency": 3,
                "user": "hasty",
                "in settings": ("ko", None),
            },
        ),
        (
            ChatOptions,
            {"locale": "en"},
            {
                "toolset": "tools.py:toolset",
                "locale": "en",
                "model": "org/model",
                "dialect": "openai",
                "in settings": ("en", ADDRESS),
            },
        ),
        (
            DoctorOptions,
            {},
            {"model": "org/model", "dialect": "openai", "in settings": ("ko", ADDRESS)},
        ),
        (
            LintOptions,
            {"locale": ("en",)},  # selects scenarios
            {
                "toolset": "tools.py:toolset",
                "paths": (Path("scenarios"), Path("shopping.scenario.yaml")),
                "locale": ("en",),
                "in settings": ("ko", None),
            },
        ),
        (
            PromptOptions,
            {},
            {
                "toolset": "tools.py:toolset",
                "model": "org/model",
                "dialect": "openai",
                "in settings": ("ko", None),
            },
        ),
        (ServeOptions, {"model": "gemma"}, {"model": "gemma", "in settings": ("ko", None)}),
    ],
)
def test_option_wins_over_the_project(
    project: Path, options: type[Any], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    (project / "lhkit.toml").write_text(EVERYTHING)
    assert taken(options, **given) == expected


def test_variable_wins_over_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "lhkit.toml").write_text(EVERYTHING)
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_BASE_URL", "http://127.0.0.1:8")
    values, settings, line = with_project(EvalOptions, {}, load_settings())
    assert (settings.locale, settings.base_url) == ("en", "http://127.0.0.1:8")
    assert "locale" not in line
    assert "base_url" not in line
    assert "base_url" not in values


@pytest.mark.longer
def test_locale_of_the_project_wins_over_that_of_the_machine(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    (project / "lhkit.toml").write_text(f'{TOOLSET}\nlocale = "ko"')
    assert "읽은 시나리오 3개" in run("lint")[1]
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    assert "3 scenarios read" in run("lint")[1]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("tolset = 'x'", ["lhkit.toml: unknown key 'tolset': did you mean toolset?"]),
        ("colour = 'red'", ["lhkit.toml: unknown key 'colour': the keys are toolset, scenarios,"]),
        ("toolset = 1", ["lhkit.toml: toolset: must be"]),
        ("scenarios = 1", ["lhkit.toml: scenarios: must be"]),
        ("scenarios = []", ["lhkit.toml: scenarios: must"]),
        ("scenarios = [1]", ["lhkit.toml: scenarios[0]: must be"]),
        ("model = ''", ["lhkit.toml: model: "]),
        ("base_url = 'nowhere'", ["lhkit.toml: base_url: ", "nowhere"]),
        ("base_url = 'http://me:secret@host'", ["lhkit.toml: base_url: ", "LHKIT_API_KEY"]),
        ("dialect = 'jsn'", ["lhkit.toml: dialect: must be one of functiongemma, gemma4, json"]),
        ("locale = 'fr'", ["lhkit.toml: locale: must be one of en, ko"]),
        ("concurrency = '8'", ["lhkit.toml: concurrency: must be"]),
        ("concurrency = 0", ["lhkit.toml: concurrency: must be"]),
        ("user = 'lazy'", ["lhkit.toml: user: must be"]),
        ("a = 1\nuser = 2", ["lhkit.toml: unknown key 'a'", "lhkit.toml: user: must"]),
        ("toolset ==", ["lhkit.toml is not valid TOML"]),
        ("toolset = '\udc80'", ["lhkit.toml cannot be read"]),
    ],
)
def test_project_file_with_an_invalid_key_is_refused(
    project: Path, run: Run, text: str, messages: list[str]
) -> None:
    (project / "lhkit.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    code, _, err = run("lint")
    assert code == 2
    for message in messages:
        assert message in err
    assert "secret" not in err


def test_empty_project_file_changes_nothing(project: Path) -> None:
    (project / "lhkit.toml").write_text("")
    assert with_project(EvalOptions, {}, load_settings())[2] == ""


def test_find_project_is_none_without_a_file(tmp_path: Path) -> None:
    assert find_project(tmp_path) is None
    with pytest.raises(UsageError, match="cannot be read"):
        read_project(tmp_path / "lhkit.toml")


@pytest.mark.longer
@pytest.mark.parametrize(
    "args", [["eval", "--model", "gold", "--limit", "1"], ["lint", "--limit", "1"]]
)
def test_command_says_that_it_takes_the_shipped_scenarios(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(*args)
    assert code == 0
    assert out.splitlines()[0].startswith("No PATHS and no lhkit.toml here")
    code, out, _ = run("eval", "--model", "gold", "--limit", "1", "--split", "dev")
    assert "lhkit.toml" not in out


@pytest.mark.longer
def test_eval_says_that_shipped_scenarios_are_in_another_language(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    gold = ("eval", "--model", "gold", "--limit", "2")
    assert "2 of these 2 scenarios are in another language (ko); --locale en" in run(*gold)[1]
    assert "another language" in run(*gold, "--split", "dev")[1]
    for chosen in ("en", "ko"):  # the user's choice
        assert "another language" not in run(*gold, "--locale", chosen)[1]


@check_rows(
    ("locale", "locales", "text"),
    [
        (
            "en",
            ["ko", "en", "ko"],
            "2 of these 3 scenarios are in another language (ko); --locale en",
        ),
        ("ko", ["ko", "en", "ko"], "3개 가운데 1개는 다른 언어(en)입니다. --locale ko"),
        ("ko", ["ko", "ko"], None),
        ("en", [], None),
    ],
)
def test_language_lines_count_scenarios_of_other_languages(
    locale: str, locales: list[str], text: str | None
) -> None:
    lines = list(language_lines(locales, load_catalog(locale)))
    assert (text is None) == (lines == [])
    assert text is None or text in lines[0]


@pytest.mark.longer
@pytest.mark.usefixtures("project")
def test_eval_says_which_options_a_script_ignores(run: Run) -> None:
    code, out, _ = run("eval", "--model", "gold", "--dialect", "gemma4", "--dtype", "float32")
    assert code == 0
    assert "no effect: --dialect, --dtype" in out.splitlines()[1]
    assert "no effect" not in run("eval", "--model", "gold")[1]


@pytest.mark.longer
def test_run_folder_of_a_server_is_named_by_its_address(project: Path, run: Run) -> None:
    (project / "lhkit.toml").write_text(f'{TOOLSET}\nbase_url = "{ADDRESS}"')
    assert run("eval")[0] == 3
    assert run("eval", "--base-url", "http://127.0.0.1:10")[0] == 3
    assert run("eval", "--base-url", "http://127.0.0.1:99999")[0] == 2
    assert not (project / "runs").exists() or {p.name for p in (project / "runs").iterdir()} <= {
        "127.0.0.1-9-tools",
        "127.0.0.1-10-tools",
    }


def test_project_keys_are_options_that_exist() -> None:
    options = EvalOptions.model_fields.keys() | {"scenarios"}
    assert ProjectKeys.model_fields.keys() <= options


@pytest.mark.longer
def test_scores_of_project_and_command_add_up(project: Path, run: Run) -> None:
    code = "from lhkit import score\n\n@score\ndef {0}(sample):\n    return len(sample.turns)\n"
    for name in ("one", "two"):
        (project / f"{name}.py").write_text(code.format(name), encoding="utf-8")
    (project / "lhkit.toml").write_text(f'{TOOLSET}\nscores = ["one.py:one"]\n')
    (project / "inner").mkdir()
    code, out, _ = run("eval", "--model", "gold", "--name", "run", "--score", "two.py:two")
    assert code == 0
    assert "scores one.py:one" in out.splitlines()[0]
    found = lhkit.Run.load(project / "runs" / "run")
    assert {figure.name: figure.n for figure in found.summary().scores} == {"one": 3, "two": 3}
    assert run("rescore", "runs/run")[0] == 0  # judges again, with those of the project
    again = lhkit.Run.load(project / "runs" / "run-rescored")
    assert [figure.name for figure in again.summary().scores] == ["one"]
    (project / "lhkit.toml").write_text(f"{TOOLSET}\nscores = 3\n")
    code, _, err = run("eval", "--model", "gold")
    assert code == 2
    assert "scores" in err
