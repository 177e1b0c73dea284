"""Confirmation: ask a person before a tool changes data.

- `gate`: the `ConfirmGate` protocol, `GuardedGate`, gates without a person.
- `decision`: approve, edit, reject, and how the question was answered.
- `terminal`: `TerminalGate`, which asks in lines of text. The notebook's is `lhkit.notebook`'s.
- `summary`: the text of a request, from the tool's own `summarize` or its arguments.
- `form`: forms that a running tool may show (MCP elicitation); `fields`, `schema_fields`: the
  fields of forms and edited calls.

Start with the docstring of `gate` to write a gate. Tools are run by `lhkit.tools.dispatcher`.
"""
