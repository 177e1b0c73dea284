"""The help of each command: an example or more that its parser takes, whole at 80 columns."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lhkit.base.locales import available_locales
from lhkit.cli.frame.parser import LazyCommand, build_parser
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.models.dialects import DIALECTS
from lhkit.models.serving.gemma import EMBEDDED_NAMES
from tests.docs.command_lines import read_line
from tests.rows import check_rows


def never(coroutine: object) -> int:
    raise AssertionError(f"help ran {coroutine}")


def examples(command: Any, name: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each command below `command`, by its full name, with its examples."""
    yield name, [line.removeprefix("$ ") for line in (command.epilog or "").splitlines()]
    for inner in getattr(command, "commands", {}).values():
        loaded = inner.load() if isinstance(inner, LazyCommand) else inner
        yield from examples(loaded, f"{name} {inner.name}".strip())


PARSER = build_parser(never, "en")
EXAMPLES = dict(examples(get_command(PARSER)))
GROUPS = {"", "chats", "import", "mcp"}
LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


def helped(command: str) -> str:
    words = [*command.split(), "--help"]
    shown = CliRunner().invoke(PARSER, words, env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_help_has_examples_for_every_command() -> None:
    assert {"eval", "chats list", "import bfcl", "mcp serve"} | GROUPS <= set(EXAMPLES)
    assert all(EXAMPLES.values())


@pytest.mark.longer
@check_rows(("command", "line"), LINES, ids=[line for _, line in LINES])
def test_help_examples_parse(command: str, line: str) -> None:
    called = read_line(line)
    assert called == command or (command in GROUPS and called.startswith(command))


@pytest.mark.longer
@check_rows("command", EXAMPLES)
def test_help_fits_80_columns(command: str) -> None:
    shown = helped(command)
    lines = [line.strip() for line in shown.splitlines()]
    assert [line for line in EXAMPLES[command] if f"$ {line}" not in lines] == []
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("command", ["chat", "compare"])
def test_help_names_all_locales(command: str) -> None:
    words = set(helped(command).replace(".", " ").split())
    assert set(available_locales()) <= words


@pytest.mark.longer
def test_help_names_all_dialects() -> None:
    for command in ("eval", "chat", "doctor"):
        words = set(re.findall(r"\w+", helped(command)))
        assert {*DIALECTS, "openai"} <= words


@pytest.mark.longer
@check_rows("name", ["off", "auto", "required", *EMBEDDED_NAMES, *filter(None, REFERENCE_MODELS)])
def test_help_names_all_constraints_and_models(name: str) -> None:
    assert name in re.findall(r"[\w-]+", helped("eval"))


@check_rows(
    ("line", "message"),
    [
        ("lhkit eval --fail-below 85", "No such option"),
        ("lhkit rescore --into rescored", "Missing parameter: run"),
        ("lhkit eval --repeats none", "should be a valid integer"),
        ("lhkit evaluate", "evaluate"),
    ],
)
def test_read_line_refuses_invalid_command_line(line: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        read_line(line)
