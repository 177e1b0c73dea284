"""Options that are typed, and defaults of those that are not."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lhkit.cli.accept import AcceptOptions
from lhkit.cli.chat.chat import ChatOptions
from lhkit.cli.doctor import DoctorOptions
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.export import ExportOptions
from lhkit.cli.frame.parser import build_parser
from lhkit.cli.lint import LintOptions
from lhkit.cli.matrix import MatrixOptions
from lhkit.cli.mcp import McpServeOptions
from lhkit.cli.mutate import MutateOptions
from lhkit.cli.prompt import PromptOptions
from lhkit.cli.report import ReportOptions
from lhkit.cli.rescore import RescoreOptions
from lhkit.cli.serve.serve_line import ServeOptions
from lhkit.harness.running.run_options import RunOptions
from tests.rows import check_rows

ONE, TWO, RUN, NEW = Path("one.yaml"), Path("two.yaml"), Path("runs/one"), Path("new")
A = "http://127.0.0.1:1"


def taken(line: str) -> Any:
    """Return the options that the command of a line is called with; it is not run."""
    parsed = []

    def run(command: Coroutine[Any, Any, int]) -> int:
        parsed.append(command.cr_frame.f_locals["options"])
        command.close()
        return 0

    shown = CliRunner().invoke(build_parser(run), line.split())
    assert shown.exit_code == 0, shown.output
    (options,) = parsed
    return options


@pytest.mark.longer
@check_rows(
    ("line", "options"),
    [
        ("eval", EvalOptions()),
        ("matrix suite.toml", MatrixOptions(suite=Path("suite.toml"))),
        ("chat", ChatOptions()),
        ("serve", ServeOptions()),
        (
            "mcp serve",
            McpServeOptions(),
        ),
        ("doctor", DoctorOptions()),
        ("lint", LintOptions()),
        ("mutate", MutateOptions()),
        ("accept runs/one a", AcceptOptions(run=RUN, sample="a")),
        ("prompt", PromptOptions()),
        ("rescore runs/one", RescoreOptions(run=RUN)),
        ("report runs/one", ReportOptions(folder=RUN)),
        ("export runs/one", ExportOptions(folder=RUN)),
    ],
)
def test_options_have_python_defaults(line: str, options: object) -> None:
    assert taken(line) == options


@check_rows(
    ("line", "options"),
    [
        (
            f"eval one.yaml two.yaml --base-url {A} --limit 3 --exit-zero",
            EvalOptions(paths=(ONE, TWO), base_url=A, limit=3, exit_zero=True),
        ),
        (
            "eval --ray local --replicas 2 --gpus-per-replica 1 --cpus-per-replica 0.5",
            EvalOptions(ray="local", replicas=2, gpus=1, cpus=0.5),
        ),
        (
            "serve --weights new --compile --dry-run",
            ServeOptions(weights=NEW, compiled=True, dry_run=True),
        ),
        ("chat --db kept.sqlite3 --locale en", ChatOptions(file=Path("kept.sqlite3"), locale="en")),
        (
            "accept runs/one a --scenarios one.yaml --scenarios two.yaml --dry-run",
            AcceptOptions(run=RUN, sample="a", paths=(ONE, TWO), is_dry=True),
        ),
    ],
)
def test_options_are_parsed(line: str, options: object) -> None:
    assert taken(line) == options


def test_eval_options_have_the_defaults_of_run_options() -> None:
    assert EvalOptions().run_options() == RunOptions()
