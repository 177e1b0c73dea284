"""A tool out of a typed, documented Python function; the schema is derived by pydantic."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import ConfigDict, Field, PydanticUserError, ValidationError, create_model

from lhkit.confirm.summary import Summarizer
from lhkit.errors import RegistrationError
from lhkit.tools.definition import Handler, ToolDefinition
from lhkit.tools.schema import with_subschemas
from lhkit.tools.validation import Check, Invalid, invalid
from lhkit.vocab.json_values import JSON, NotJsonError, compact
from lhkit.vocab.results import ToolOk, ToolResult

DEPS_PARAMETER = "deps"

_POSITIONAL_OR_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def definition_of(
    function: Callable[..., Any],
    *,
    name: str | None,
    is_destructive: bool,
    summarize: Summarizer | None,
    timeout_s: float,
    implied: Mapping[str, JSON],
) -> ToolDefinition:
    """Return the definition of a tool that calls `function` with keyword arguments.

    Arguments arrive as pydantic makes them of the validated JSON (a `date` parameter gets a
    `date`), and what it refuses is refused before anybody is asked.
    A returned mapping that is no `ToolResult` becomes `ToolOk`.

    Raises:
        RegistrationError: no docstring, a parameter without a type, or `*args`/`**kwargs`.
    """
    tool_name = name or function.__name__
    doc = inspect.getdoc(function)
    if not doc:
        raise RegistrationError(
            f"tool {tool_name!r}: the function needs a docstring, which the model reads"
        )
    arguments = _arguments_model(tool_name, function)
    takes_deps = DEPS_PARAMETER in inspect.signature(function).parameters
    return ToolDefinition(
        name=tool_name,
        description=" ".join(doc.split("\n\n")[0].split()),
        parameters=_schema_of(tool_name, arguments),
        handler=_handler(function, arguments, takes_deps=takes_deps),
        is_destructive=is_destructive,
        summarize=summarize,
        timeout_s=timeout_s,
        check=_check(arguments),
        implied=implied,
    )


def _arguments_model(tool_name: str, function: Callable[..., Any]) -> Any:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == DEPS_PARAMETER:
            continue
        if parameter.kind not in _POSITIONAL_OR_NAMED:
            raise RegistrationError(
                f"tool {tool_name!r}: {parameter} cannot come from JSON: name each argument"
            )
        if parameter.name not in hints:
            raise RegistrationError(
                f"tool {tool_name!r}: {parameter.name!r} has no type: annotate it, such as "
                f"{parameter.name}: str"
            )
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], Field(default))
    return create_model(f"{tool_name}_arguments", __config__=ConfigDict(strict=False), **fields)


def _schema_of(tool_name: str, arguments: Any) -> Mapping[str, Any]:
    try:
        schema = arguments.model_json_schema()
    except PydanticUserError as error:
        raise RegistrationError(f"tool {tool_name!r}: no JSON Schema: {error.message}") from error
    untitled: Mapping[str, Any] = _untitled(schema)
    return untitled


def _untitled(schema: Any) -> Any:
    """Drop pydantic's generated titles: they cost tokens and tell the model nothing.

    Only titles of schemas: a property, or a key of a default value, may have that name.
    """
    if not isinstance(schema, Mapping):
        return schema
    inner = with_subschemas(schema, _untitled)
    return {key: value for key, value in inner.items() if key != "title"}


def _read(arguments: Any, args: Mapping[str, JSON]) -> Any:
    """Return what pydantic makes of validated arguments: the same for the check and the handler.

    Strict, and from JSON text: a text may become a date, a number may not.

    Raises:
        ValidationError: they do not fit the annotations.
        NotJsonError: an integer too long to write.
    """
    return arguments.model_validate_json(compact(args), strict=True)


def _check(arguments: Any) -> Check:
    def check(args: Mapping[str, JSON]) -> Invalid | None:
        try:
            _read(arguments, args)
        except NotJsonError as error:
            return invalid("(all)", "shorter numbers", str(error))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(map(str, fault["loc"]))
            told = fault["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            return invalid(where or "(all)", told, fault["input"])
        return None

    return check


def _handler(function: Callable[..., Any], arguments: Any, *, takes_deps: bool) -> Handler:
    async def handle(args: Mapping[str, JSON], deps: Any) -> ToolResult:
        values = dict(_read(arguments, args))
        if takes_deps:
            values[DEPS_PARAMETER] = deps
        returned = function(**values)
        if inspect.isawaitable(returned):
            returned = await returned
        return ToolOk(returned) if isinstance(returned, Mapping) else returned

    return handle
