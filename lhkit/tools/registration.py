"""Check tool definitions when they are registered, so that an issue is found before any call."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any

from lhkit.base.errors import RegistrationError
from lhkit.base.json_values import NotJsonError, compact, shown
from lhkit.base.schema import (
    KnownKeys,
    SchemaNode,
    applied,
    conjuncts,
    in_place,
    nfc,
    property_schemas,
    resolve,
    subschemas,
)
from lhkit.tools.definition import TODAY, ToolDefinition
from lhkit.tools.drafts import upgrade_schema
from lhkit.tools.functions import FunctionHandler
from lhkit.tools.json_schema import Draft202012Validator, SchemaError
from lhkit.tools.rules import rule_issue, takes_more_than_arguments
from lhkit.tools.validation import value_issue

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names that both OpenAI's API and MCP allow."""


def check_definition(definition: ToolDefinition) -> ToolDefinition:
    """Return a valid definition, its schema as Draft 2020-12.

    Raises:
        RegistrationError: the definition is invalid; the message names the tool and the issue.
    """
    name: Any = definition.name
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise RegistrationError(f"tool {name!r}: the name must match {NAME_PATTERN.pattern}")
    if not definition.description.strip():
        raise RegistrationError(f"tool {name!r}: the description is empty: the model needs it")
    titles = definition.title if isinstance(definition.title, Mapping) else {"": definition.title}
    if not all(isinstance(text, str) for pair in titles.items() for text in pair):
        raise RegistrationError(f"tool {name!r}: title must be a text, or texts by language")
    if not callable(definition.handler):
        raise RegistrationError(f"tool {name!r}: the handler is not callable")
    if not definition.timeout_s > 0:
        raise RegistrationError(f"tool {name!r}: timeout_s must be above 0 seconds")
    schema = _check_schema(name, definition.parameters)
    if schema is not definition.parameters:
        definition = replace(definition, parameters=schema)
    issues = (_implied_issues, _claims_issues, _rule_issues, _always_ask_issues)
    for issue in chain.from_iterable(find(definition) for find in issues):
        raise RegistrationError(f"tool {name!r}: {issue}")
    return definition


def _check_schema(name: str, schema: Any) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise RegistrationError(f'tool {name!r}: the schema must have "type": "object" at its top')
    if "nullable" in schema:  # arguments are an object in any case
        schema = {key: value for key, value in schema.items() if key != "nullable"}
    try:
        text = compact(schema)
    except NotJsonError as error:
        issue = _json_issue(schema) or str(error)
        raise RegistrationError(f"tool {name!r}: {issue}") from error
    try:
        latest = _checked(text)
    except SchemaError as error:
        path = "/".join(str(part) for part in error.absolute_path) or "top"
        raise RegistrationError(
            f"tool {name!r}: invalid JSON Schema at {path}: {error.message}"
        ) from error
    except RecursionError as error:
        raise RegistrationError(f"tool {name!r}: the schema is nested too deeply") from error
    except RegistrationError as error:
        raise RegistrationError(f"tool {name!r}: {error}") from None
    result: Mapping[str, Any] = schema if latest == text else json.loads(latest)
    return result


@lru_cache(maxsize=4096)
def _checked(text: str) -> str:
    """Return a schema as Draft 2020-12, both as JSON text.

    Cached, since each conversation may register its tools anew, and a check takes milliseconds.

    Raises:
        SchemaError: it is no valid schema.
        RegistrationError: it cannot describe arguments.
        RecursionError: it is nested too deeply.
    """
    schema = json.loads(text)
    latest = upgrade_schema(schema)
    Draft202012Validator.check_schema(latest)
    if issue := schema_issue(latest):
        raise RegistrationError(issue)
    return text if latest is schema else compact(latest)


def _json_issue(schema: Mapping[str, Any]) -> str | None:
    """Return which part of a schema is not JSON, and why; None if all is."""
    properties = schema.get("properties")
    arguments = properties if isinstance(properties, Mapping) else {}
    parts = {f"argument {name!r}": argument for name, argument in arguments.items()}
    for label, part in {**parts, "the schema": schema}.items():
        try:
            compact(part)
        except NotJsonError as error:
            return f"{label}: {error}"
    return None


def _implied_issues(definition: ToolDefinition) -> Iterator[str]:
    schema = definition.parameters
    for argument, value in definition.implied.items():
        issue: str | None = None
        if argument not in KnownKeys.of(schema).names:
            issue = "there is no such argument"
        elif all(argument in b.get("required", ()) for b in SchemaNode.of(schema).branches()):
            issue = "it is required, so it is never left out"
        elif value != TODAY:
            issue = value_issue(schema, argument, value)
        if issue:
            yield f"implied {argument!r}: {issue}"


def _rule_issues(definition: ToolDefinition) -> Iterator[str]:
    check = None if isinstance(definition.handler, FunctionHandler) else definition.check
    if check is not None and takes_more_than_arguments(check):
        yield "check: it takes the arguments alone: give one that sees the data as rules=[…]"
    rules: Any = definition.rules
    if isinstance(rules, str) or not isinstance(rules, Sequence):
        yield "rules: give a list of functions"
        return
    for rule in rules:
        if issue := rule_issue(rule):
            yield f"check: {issue}"


def _always_ask_issues(definition: ToolDefinition) -> Iterator[str]:
    always_ask: Any = definition.always_ask
    if not isinstance(always_ask, bool):
        yield f"always_ask: give True or False, not {shown(always_ask)}"
    elif always_ask and not definition.is_destructive:
        yield "always_ask: only a destructive tool is asked: add destructive=True"


def _claims_issues(definition: ToolDefinition) -> Iterator[str]:
    for locale, patterns in definition.claims.items():
        if issue := _claim_issue(patterns, is_destructive=definition.is_destructive):
            yield f"claims[{locale!r}]: {issue}"


def _claim_issue(patterns: Any, *, is_destructive: bool) -> str | None:
    if not is_destructive:
        return "the tool changes nothing: only a destructive tool has a success to claim"
    if isinstance(patterns, str) or not isinstance(patterns, Sequence):
        return 'give a list of words, such as ["sent", "texted"]'
    for pattern in patterns:
        try:
            matches_empty_text = re.search(pattern, "") is not None
        except (TypeError, re.error) as error:
            return f"{pattern!r} is neither words nor a regular expression ({error})"
        if matches_empty_text:
            return f"{pattern!r} matches an empty text: every reply would claim success"
    return None


def schema_issue(schema: Mapping[str, Any]) -> str | None:
    """Return why a valid JSON Schema cannot describe a tool's arguments; None if it can.

    Issues are a reference that is unresolvable or leaves the schema, endless recursion on the same
    value, and an argument that no call can pass.
    """
    issues = chain(_broken_references(schema), _loops(schema))
    return next(issues, None) or next(_unusable_names(schema), None)


def _all_subschemas(schema: Any) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield every subschema, and True if it is within a nested `$id`."""
    seen: set[int] = set()
    waiting: list[tuple[Any, bool]] = [(schema, False)]
    while waiting:
        part, is_foreign = waiting.pop()
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        is_foreign = is_foreign or ("$id" in part and part is not schema)
        yield part, is_foreign
        waiting += [(inner, is_foreign) for inner in subschemas(part)]
        waiting.append((resolve(part.get("$ref"), schema), is_foreign))


def _broken_references(schema: Mapping[str, Any]) -> Iterator[str]:
    advice = "copy its target into $defs and write #/$defs/NAME"
    for part, is_foreign in _all_subschemas(schema):
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in part:
                yield f"{key} {part[key]!r} is not supported: {advice}"
        if "$ref" not in part:
            continue
        reference = part["$ref"]
        if is_foreign:
            yield f"$ref {reference!r} is within a nested $id: {advice}"
        elif reference != "#" and not reference.startswith("#/"):
            yield f"$ref {reference!r} leaves the schema, and nothing is fetched: {advice}"
        elif not _is_schema(resolve(reference, schema)):
            yield f"$ref {reference!r} does not point to a schema: {advice}"


def _is_schema(value: Any) -> bool:
    meta_validator = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    return isinstance(value, Mapping | bool) and meta_validator.is_valid(value)


def _loops(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references that apply a schema to the same value again, without end."""
    done: set[int] = set()

    def visit(part: Any, parents: frozenset[int]) -> Iterator[str]:
        if not isinstance(part, Mapping) or id(part) in done:
            return
        for inner in (*applied(part, schema), part.get("not")):
            if id(inner) in parents | {id(part)}:
                reference = part.get("$ref", "#")
                yield f"$ref {reference!r} is applied to itself without end: remove it"
            else:
                yield from visit(inner, parents | {id(part)})
        done.add(id(part))

    for part, _ in _all_subschemas(schema):
        yield from visit(part, frozenset())


def _unusable_names(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield why an argument that is declared or required can never be passed."""
    declared = KnownKeys.of(schema)
    for part in in_place(schema, schema):
        dependent = part.get("dependentRequired", {})
        for name in (*part.get("required", ()), *chain.from_iterable(dependent.values())):
            if not declared.has(name):
                yield f"{name!r} is required but not declared: add it to properties"
    spellings = [nfc(name) for name in declared.names]
    for name in sorted(declared.names):
        if spellings.count(nfc(name)) > 1:
            yield f"{name!r} is declared in two spellings that look the same: remove one"
    for part in conjuncts(schema, schema):
        yield from _refused_names(part, declared)


def _refused_names(part: Mapping[str, Any], declared: KnownKeys) -> Iterator[str]:
    for name, argument in part.get("properties", {}).items():
        if argument is False:
            yield f"{name!r} accepts no value (false): remove it from properties"
    if part.get("additionalProperties") is False:
        naming = {key: part[key] for key in ("properties", "patternProperties") if key in part}
        for name in sorted(declared.names):
            if not any(True for _ in property_schemas(naming, name)):
                yield (
                    f"{name!r} is refused by an additionalProperties: false in another part of "
                    "the schema: declare all arguments in one place"
                )
