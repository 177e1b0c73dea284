"""Try the tools that real MCP servers list: register, render, validate, edit, constrain, score.

    python evals/benchmarks/tool_lists.py dump lists/memory.json \
        @modelcontextprotocol/server-memory 2026.8.31 npx -y @modelcontextprotocol/server-memory
    python evals/benchmarks/tool_lists.py try lists

`dump` starts a server and writes what it lists; nothing is called. `try` runs no server: each tool
is registered as `McpToolset` does, and stands in for the real one with a handler that does nothing.
A list is a JSON file with `package`, `version` and `tools`. Results are in
[tool_lists.md](tool_lists.md); the lists are other people's texts and are not part of this folder.
"""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from mcp_types import Tool

from lhkit.base.errors import LhkitError
from lhkit.confirm.form import DECLINED, FieldKind, argument_form, parse_value
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.tool_results import ToolOk
from lhkit.harness.authoring.checks import Level
from lhkit.harness.authoring.examples import plausible_calls
from lhkit.harness.authoring.lint import lint
from lhkit.harness.authoring.mutate import mutate
from lhkit.harness.scenarios.loader import load_scenarios, read_sources
from lhkit.mcp.launch import Launch
from lhkit.mcp.toolset import McpToolset
from lhkit.models.client.request import chat_tools
from lhkit.models.dialects import DIALECTS
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import BareToolset

TODAY = date(2026, 1, 1)
TEXT = "the green notebook"

app = typer.Typer(add_completion=False)


@dataclass
class Row:
    """What works of one list of tools, and what does not."""

    package: str
    version: str
    tools: int
    counts: Counter[str] = field(default_factory=Counter)
    issues: list[str] = field(default_factory=list)


COLUMNS = ("registered", "rendered", "read back", "example", "constrained", "form", "fields")
MORE = ("JSON fields", "linted", "mistakes", "noticed")


@app.command()
def dump(
    file: Path,
    package: str,
    version: str,
    command: Annotated[list[str], typer.Argument()],
    env: Annotated[list[str], typer.Option(help="NAME=VALUE, such as a key to start with.")] = [],  # noqa: B006
) -> None:
    """Write the tool list of a server."""
    from lhkit.mcp.connection import McpConnection

    async def decline(_message: str, _schema: Mapping[str, Any]) -> Any:
        return DECLINED

    program, *args = command
    given = dict(pair.split("=", 1) for pair in env)
    server = Launch(command=program, args=tuple(args), env=given)
    connection = McpConnection(server, shown=package, secrets={}, start_s=60, elicit=decline)
    try:
        tools = [tool.model_dump(by_alias=True, exclude_unset=True) for tool in connection.tools]
    finally:
        connection.close()
    listed = {"package": package, "version": version, "tools": tools}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(listed, ensure_ascii=False, indent=1), encoding="utf-8")


@app.command(name="try")
def try_lists(folder: Path) -> None:
    """Print a table of the lists in a folder."""
    rows = [try_list(json.loads(file.read_text("utf-8"))) for file in sorted(folder.glob("*.json"))]
    typer.echo("\n".join(table(rows)))


def try_list(listed: Mapping[str, Any]) -> Row:
    """Return what works of a list of tools."""
    row = Row(listed["package"], listed["version"], len(listed["tools"]))
    tools = [Tool.model_validate(tool) for tool in listed["tools"]]
    registry = McpToolset(server="x", trust="annotations").registry(
        tools, lambda _name: lambda _args, _deps: ToolOk({"done": True})
    )
    row.counts["registered"] = len(registry)
    row.issues += [f"{name}: {reason}" for name, reason in registry.left_out.items()]
    calls: dict[str, dict[str, Any]] = {}
    for name, tool in registry.items():
        found = plausible_calls(tool, registry.validator(name), ids={}, text=TEXT, today=TODAY)
        if found:
            calls[name] = dict(found[-1].args)
        else:
            row.issues.append(f"{name}: no example")
        try_dialects(tool, calls.get(name), row)
        try_form(tool, calls.get(name), row)
    row.counts["example"] = len(calls)
    without = DIALECTS["json"].unconstrained_tools(registry.definitions)
    row.counts["constrained"] = len(registry) - len(without)
    row.issues += [f"{name}: not constrained: {reason}" for name, reason in without.items()]
    asyncio.run(try_scenarios(registry, calls, row))
    return row


def try_dialects(tool: ToolDefinition, args: Mapping[str, Any] | None, row: Row) -> None:
    """Count whether a tool is rendered in every dialect, and a call of it read back."""
    chat_tools([tool])
    prompts = [d.encode([UserMessage(text="Hi")], [tool], "Help.") for d in DIALECTS.values()]
    row.counts["rendered"] += all(tool.name in prompt for prompt in prompts)
    if args is None:
        return
    for dialect in DIALECTS.values():
        parsed = dialect.parse(dialect.render_call(tool.name, args), [tool])
        if [(call.name, call.args) for call in parsed.calls] != [(tool.name, args)]:
            row.issues.append(f"{tool.name}: {dialect.name} reads another call")
            return
    row.counts["read back"] += 1


def try_form(tool: ToolDefinition, args: Mapping[str, Any] | None, row: Row) -> None:
    """Count the fields of the form that edits a call, which must give the same arguments."""
    form = argument_form(tool.parameters, args or {})
    kinds = Counter(form_field.kind for form_field in form.fields)
    row.counts["fields"] += len(form.fields)
    row.counts["JSON fields"] += kinds[FieldKind.JSON]
    typed = {form_field.name: form_field for form_field in form.fields}
    back = {name: parse_value(typed[name], form.typed[name]) for name in args or {}}
    if back == dict(args or {}):
        row.counts["form"] += 1
    else:
        row.issues.append(f"{tool.name}: the form gives other arguments: {back}")


async def try_scenarios(
    registry: ToolRegistry, calls: Mapping[str, Mapping[str, Any]], row: Row
) -> None:
    """Lint and mutate one scenario a tool: the user asks for just the example call."""
    scenarios = [scenario(name, args, registry) for name, args in calls.items()]
    toolset = BareToolset(registry=registry)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tools.yaml"
        file.write_text(yaml.safe_dump(scenarios, allow_unicode=True), encoding="utf-8")
        findings = await lint(read_sources([file]), toolset)
        errors = {each.scenario: each for each in findings if each.level is Level.ERROR}
        row.issues += [f"{name}: lint: {each.message}" for name, each in errors.items()]
        row.counts["linted"] = len(scenarios) - len(errors)
        for one in load_scenarios([file]):
            if one.id not in errors:
                try:
                    report = await mutate([one], toolset)
                except LhkitError as error:
                    row.issues.append(f"{one.id}: mutate: {error}")
                    continue
                row.counts["mistakes"] += report.total.tried
                row.counts["noticed"] += report.total.noticed


def scenario(name: str, args: Mapping[str, Any], registry: ToolRegistry) -> dict[str, Any]:
    """Return a scenario of one call."""
    call = {"tool": name, "args": {key: {"equals": value} for key, value in args.items()}}
    answer = {"confirm": "accept"} if name in registry.destructive else {}
    turn = {
        "user": f"Use {name} with {json.dumps(args, ensure_ascii=False)}.",
        **answer,
        "expect": {"calls": [call]},
        "reply": {"contains_any": ["finished"]},
        "gold": {"say": "It is finished."},
    }
    return {"id": f"t{name.lower()}", "ac": "call", "locale": "en", "turns": [turn]}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a Markdown table of the counts, and a list of what does not work."""
    names = (*COLUMNS, *MORE)
    yield "| package | version | tools | " + " | ".join(names) + " |"
    yield "|---|---|" + "---:|" * (len(names) + 1)
    total = Row("**all**", "", sum(row.tools for row in rows))
    for row in rows:
        total.counts.update(row.counts)
    for row in [*rows, total]:
        counts = " | ".join(f"{row.counts[name]:,}" for name in names)
        yield f"| {row.package} | {row.version} | {row.tools} | {counts} |"
    yield ""
    for row in rows:
        for issue in row.issues:
            yield f"- {row.package}: {' '.join(issue.split())[:160]}"


if __name__ == "__main__":
    app()
