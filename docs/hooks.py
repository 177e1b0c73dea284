"""Hooks of MkDocs: the reference pages that are generated from the command line and the schema."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from lhkit.cli.frame.parser import build_parser
from lhkit.harness.scenarios.scenario_schema import scenario_json_schema
from lhkit.settings import Settings

_site: list[Path] = []


def on_config(config: Any) -> None:
    """Remember the folder of the site."""
    _site[:] = [Path(config["site_dir"])]


def on_shutdown() -> None:
    """Write the search index for file:// again, with all languages.

    The offline plugin writes it for each language, before the index of all is complete.
    """
    for site in _site:
        index = site / "search" / "search_index.json"
        if index.is_file():
            text = f"var __index = {index.read_text(encoding='utf-8')}"
            index.with_suffix(".js").write_text(text, encoding="utf-8")


def on_post_build(config: Any) -> None:
    """Write the scenarios' JSON Schema and `llms.txt`, with links to the site's pages."""
    site = Path(config["site_dir"])
    schema = json.dumps(scenario_json_schema(), ensure_ascii=False, indent=2)
    (site / "scenario.schema.json").write_text(f"{schema}\n", encoding="utf-8")
    text = Path(config["docs_dir"], "llms.txt").read_text(encoding="utf-8")
    (site / "llms.txt").write_text(text.replace(".md)", ".html)"), encoding="utf-8")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the parts of a page that are generated."""
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", "\n".join(_commands()))
    if "<!-- settings -->" in markdown:
        markdown = markdown.replace("<!-- settings -->", "\n".join(_settings()))
    if "<!-- schema -->" in markdown:
        markdown = markdown.replace("<!-- schema -->", "\n".join(_schema()))
    return markdown


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


def _settings() -> Iterator[str]:
    yield "| variable | meaning |\n|---|---|"
    for name, text in re.findall(r"^ +(\w+): (.+)$", Settings.__doc__ or "", re.MULTILINE):
        if name in Settings.model_fields:
            yield f"| `LHKIT_{name.upper()}` | {text} |"


def _schema() -> Iterator[str]:
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
