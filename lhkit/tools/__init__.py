"""Tools: from a Python function to the result of one call.

- `definition`: `ToolDefinition`, the value that describes one tool.
- `functions`: derives a definition from a typed, documented function; `docstrings` reads its texts.
- `registry`: `ToolRegistry`, tools by name; `registration` checks each definition.
- `validation`: checks a call's arguments; `describe` words the messages for the model.
- `dispatcher`: `ToolDispatcher`, which validates, confirms and runs one call; `outcome_draft`
  collects its outcome.
- `rules`, `refusals`: what may refuse a call before the user is asked, and how it is run.
- `json_schema`, `drafts`: JSON Schema and its older drafts (`lhkit.base` navigates schemas).
- `notices`: tools that are left out, descriptions that are cut.

A new kind of tool is a function that returns a `ToolDefinition`; its handler takes the validated
arguments and the dependencies. `functions` and `lhkit.mcp.toolset` have two; this is a third:

    def http_tool(name: str, description: str, url: str, schema: dict[str, Any]) -> ToolDefinition:
        async def post(args: Mapping[str, JSON], deps: Any) -> ToolResult:
            response = await deps.client.post(url, json=args)
            if response.status >= 400:
                return ToolErr("http", f"the service answered {response.status}")
            return ToolOk(await response.json())

        return ToolDefinition(
            name=name, description=description, parameters=schema, handler=post, is_destructive=True
        )

    registry = ToolRegistry([http_tool("book", "Book a room.", "https://…/bookings", SCHEMA)])

Results are in `lhkit.conversation.tool_results`; asking the user is left to `lhkit.confirm`.
"""
