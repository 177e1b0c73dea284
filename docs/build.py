"""Build the documentation site: `make docs`.

Zensical runs no hooks, so what is generated from the command line and the scenario schema is
written to build/reference first, where the pages include it.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from lhkit.cli.frame.parser import build_parser
from lhkit.harness.scenarios.scenario_schema import scenario_json_schema

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "site"
GENERATED = ROOT / "build" / "reference"


def main() -> None:
    """Write the generated parts, the site in both languages, and the files beside its pages."""
    GENERATED.mkdir(parents=True, exist_ok=True)
    for name, lines in {
        "commands": _commands(),
        "scenario": _scenario_fields(),
    }.items():
        (GENERATED / f"{name}.md").write_text("\n".join(lines), encoding="utf-8")
    command = Path(sys.executable).with_name("zensical-i18n")
    built = subprocess.run([command, "build", "--strict"], cwd=ROOT, check=False)
    if built.returncode:
        raise SystemExit(built.returncode)
    schema = json.dumps(scenario_json_schema(), ensure_ascii=False, indent=2)
    (SITE / "scenario.schema.json").write_text(f"{schema}\n", encoding="utf-8")
    pages = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    (SITE / "llms.txt").write_text(pages.replace(".md)", ".html)"), encoding="utf-8")


def _commands() -> Iterator[str]:
    group = get_command(build_parser(asyncio.run, "en"))  # noqa: TID251 - none is run
    parent = typer.Context(group, info_name="lhkit")
    for name in sorted(group.commands):
        yield from _command(name, group.commands[name], parent)


def _command(name: str, command: Any, parent: typer.Context) -> Iterator[str]:
    if hasattr(command, "load"):
        command = command.load()
    context = typer.Context(command, info_name=name, parent=parent)
    yield f"## {context.command_path}\n\n{command.help}\n"
    if hasattr(command, "commands"):
        for inner, subcommand in command.commands.items():
            yield from _command(inner, subcommand, context)
        return
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"```\n{usage}\n```\n"
    yield "| option | |\n|---|---|"
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record:
            option, text = (part.replace("|", r"\|").replace("\n", " ") for part in record)
            yield f"| `{option}` | {text} |"
    yield ""


def _scenario_fields() -> Iterator[str]:
    definitions = scenario_json_schema()["$defs"]
    for name in sorted(definitions, key=lambda name: (name != "Scenario", name)):
        definition = definitions[name]
        yield f"## {name}\n\n{definition.get('description', '')}\n"
        fields = definition.get("properties")
        if fields:
            yield "| field | type | |\n|---|---|---|"
            for field, schema in fields.items():
                yield f"| `{field}` | {_type(schema)} | {schema.get('description', '')} |"
            yield ""


def _type(schema: dict[str, Any]) -> str:
    """Return the type of a field as text, with links to other definitions."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return r" \| ".join(dict.fromkeys(map(_type, choices)))
    if "enum" in schema:
        return r" \| ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema.get("type") == "array":
        inner = schema.get("items") or schema.get("prefixItems", [{}])[0]
        return f"list of {_type(inner)}"
    return str(schema.get("type", "any"))


if __name__ == "__main__":
    main()
