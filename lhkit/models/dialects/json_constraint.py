"""Constrained decoding of the `json` dialect: request fields from which only valid calls come.

One grammar of our own, because it fixes what vLLM's JSON path leaves open: the separators (those
that `render_call` writes), the length of every string and number, raw Korean. `auto` lets words be
free but keeps `{` for calls, so that no call can be spelled around the grammar.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lhkit.errors import UsageError
from lhkit.models.dialects.base import Constraint, ToolSpec, spec_of
from lhkit.models.dialects.grammar_text import literal
from lhkit.models.dialects.schema_grammar import SchemaGrammar
from lhkit.vocab.json_values import compact

CALL_END = "}"


def call_start(name: str) -> str:
    """Return what stands before the arguments of a call."""
    return f'{{"name": {compact(name)}, "parameters": '


def constrained(tools: Sequence[ToolSpec], constraint: Constraint) -> Mapping[str, Any]:
    """Return the request fields that constrain decoding; none where nothing is to be constrained.

    Raises:
        UsageError: no such constraint, a call is required and there is no tool, or a schema cannot
            be constrained.
    """
    match constraint:
        case "off":
            return {}
        case "auto":
            return _fields(auto_grammar(tools)) if tools else {}
        case "required":
            return _fields(required_grammar(tools))
        case _:  # a notebook is not type-checked
            raise UsageError(f"no constraint {constraint!r}: choose one of off, auto, required")


def auto_grammar(tools: Sequence[ToolSpec]) -> str:
    """Return the grammar of free text, a valid call, or text and then a call.

    Raises:
        UsageError: there is no tool, or a schema cannot be constrained.
    """
    return "\n".join(["root ::= prose call?", "prose ::= [^{]*", *_call_rules(tools)])


def required_grammar(tools: Sequence[ToolSpec]) -> str:
    """Return the grammar of exactly one valid call.

    Raises:
        UsageError: there is no tool, or a schema cannot be constrained.
    """
    return "\n".join(["root ::= call", *_call_rules(tools)])


def _call_rules(tools: Sequence[ToolSpec]) -> list[str]:
    if not tools:
        raise UsageError("a call is required but there is no tool: give --constrain off or auto")
    schemas = SchemaGrammar()
    calls = [_call(spec_of(tool), schemas) for tool in tools]
    return [f"call ::= {' | '.join(calls)}", *schemas.rules]


def _call(spec: Mapping[str, Any], schemas: SchemaGrammar) -> str:
    name = str(spec.get("name"))
    arguments = schemas.arguments(name, spec.get("parameters", {}))
    return f"{literal(call_start(name))} {arguments} {literal(CALL_END)}"


def _fields(grammar: str) -> Mapping[str, Any]:
    return {"structured_outputs": {"grammar": grammar}}
