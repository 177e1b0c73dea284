"""Tools: from a Python function to the result of one call.

- `definition`: `ToolDefinition`, the value that describes one tool.
- `functions`: derives a definition from a typed, documented function.
- `registry`: `ToolRegistry`, tools by name; `registration` checks each definition.
- `validation`: checks a call's arguments; `describe` words the messages for the model.
- `dispatcher`: `ToolDispatcher`, which validates, confirms and runs one call.
- `schema`, `json_schema`, `drafts`, `patterns`: JSON Schema, its older drafts, its patterns.

A new kind of tool is a function that returns a `ToolDefinition` whose `handler` takes the validated
arguments and the dependencies; `functions.tool_from_function` and `lhkit.mcp.toolset` are two.
Asking the user is left to `lhkit.confirm`.
"""
