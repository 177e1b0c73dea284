"""Derive a tool from a typed, documented function; pydantic makes its schema."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field as DataclassField
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from functools import partial
from types import GenericAlias, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Never,
    NoReturn,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    RootModel,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from lhkit.base.errors import RegistrationError
from lhkit.base.json_values import JSON, NotJsonError, compact, json_or_repr, plain_json
from lhkit.base.schema import with_subschemas
from lhkit.confirm.summary import DEPS_PARAMETER, Summarizer
from lhkit.conversation.tool_results import ToolCancelled, ToolErr, ToolOk, ToolResult
from lhkit.tools.definition import Rule, ToolDefinition
from lhkit.tools.docstrings import read_docstring
from lhkit.tools.same_types import is_same_type
from lhkit.tools.validation import Invalid, PreparedCall, invalid, running_call

_log = logging.getLogger(__name__)

_POSITIONAL_OR_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None,
    description: str | None = None,
    is_destructive: bool,
    summarize: Summarizer | None,
    timeout_s: float,
    implied: Mapping[str, JSON],
    repeatable: bool,
    claims: Mapping[str, Sequence[str]],
    always_ask: bool = False,
    rules: Sequence[Rule] = (),
    title: str | Mapping[str, str] = "",
) -> ToolDefinition:
    """Return the definition of a tool that calls `function` with keyword arguments.

    pydantic converts the validated JSON (a `date` parameter gets a `date`); what it refuses is
    refused before the user is asked. A returned mapping becomes `ToolOk`. Any other value becomes
    `ToolOk({"result": value})` if the return annotation names its type, else it is an error.

    The name is by default the function's, the description the first paragraph of its docstring,
    whose part on parameters (`Args:`) describes those without a description of their own.
    The other options are those of `ToolDefinition`.

    Raises:
        RegistrationError: the function has no name or docstring, is a class or not callable, or
            has a parameter or a return type without a JSON form.
    """
    if inspect.isclass(function) or not callable(function):
        raise RegistrationError(
            f"tool {name or function!r}: it is not a function: register a function or a bound "
            "method"
        )
    body = _innermost_function(function)
    tool_name = name or getattr(function, "__name__", body.__name__)
    if tool_name == "__call__":
        raise RegistrationError(f"tool {function!r}: the object has no name: give name=")
    doc = read_docstring(_docstring(function, body))
    if not (description or doc.description):
        raise RegistrationError(
            f"tool {tool_name!r}: the function needs a docstring or description=, which the model "
            "reads"
        )
    parameters = _parameters(tool_name, function)
    takes_deps = any(parameter.name == DEPS_PARAMETER for parameter in parameters)
    arguments = _arguments(tool_name, body, parameters, doc.parameters)
    if is_destructive:
        _require_json_defaults(tool_name, arguments)
    result_type = _result_type(tool_name, function, body)
    handler = FunctionHandler(function, arguments, result_type, takes_deps)
    return ToolDefinition(
        name=tool_name,
        description=description or doc.description,
        parameters=plain_json(arguments.schema),  # the original may be that of another session
        handler=handler,
        is_destructive=is_destructive,
        summarize=summarize,
        timeout_s=timeout_s,
        check=handler.check,
        implied=implied,
        repeatable=repeatable,
        always_ask=always_ask,
        claims=claims,
        rules=rules,
        title=title,
    )


def _innermost_function(function: Any) -> Any:
    """Return the function that a partial, a bound method or a callable object calls."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isroutine(function):
            return function
        else:
            function = type(function).__call__


def _docstring(function: Any, body: Any) -> str:
    """Return the docstring, for a partial or a callable object that of the function it calls."""
    is_partial = isinstance(function, partial)  # which is a routine since Python 3.14
    if inspect.isroutine(function) and not is_partial:
        return inspect.getdoc(function) or ""
    instance_doc = vars(function).get("__doc__") if hasattr(function, "__dict__") else None
    class_doc = None if is_partial else type(function).__doc__
    return inspect.cleandoc(instance_doc or body.__doc__ or class_doc or "")


def _parameters(tool_name: str, function: Any) -> list[inspect.Parameter]:
    """Return the parameters that a call can pass: without those that a partial binds."""
    try:
        if isinstance(function, partial):
            free = _parameters(tool_name, function.func)
            signature = inspect.Signature(free)
            bound = signature.bind_partial(*function.args, **function.keywords).arguments
            return [parameter for parameter in free if parameter.name not in bound]
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"tool {tool_name!r}: the parameters cannot be read ({error}): wrap it in a function "
            "that names them"
        ) from error


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The pydantic model of a function's arguments.

    Attributes:
        model: the model.
        schema: its JSON Schema.
        names: the name of each field in the JSON, in order.
        parameters: the parameter of each name.
    """

    model: Any
    schema: Mapping[str, Any]
    names: Mapping[str, str]
    parameters: Mapping[str, str]

    def convert(self, args: Mapping[str, JSON]) -> BaseModel:
        """Return the arguments as pydantic converts them, with defaults.

        Strict mode on JSON text: a string may become a date, a number may not.

        Raises:
            ValidationError: they do not fit the annotations.
            NotJsonError: an integer has too many digits.
        """
        converted: BaseModel = self.model.model_validate_json(compact(args), strict=True)
        return converted

    def values(self, converted: BaseModel) -> dict[str, Any]:
        """Return the converted values by name."""
        return {self.names[field]: value for field, value in dict(converted).items()}

    def complete(
        self, args: Mapping[str, JSON], converted: BaseModel
    ) -> tuple[dict[str, JSON], dict[str, Any]]:
        """Return the arguments as JSON with defaults, those of inner models included.

        They are what the values consist of, where pydantic takes that; else the words of the model
        stay, as of a text that becomes a number, or a type of the user's own.

        Returns:
            The arguments, and by name the values of those which would convert to another value.

        Raises:
            NotJsonError: a default has no JSON form; the message names the argument.
        """
        values = self.values(converted)
        complete = {
            name: _form(args[name], value) if name in args else _default_json(name, value)
            for name, value in values.items()
        }
        again: dict[str, Any] = {}
        with suppress(ValidationError, NotJsonError):
            again = self.values(self.convert({name: complete[name] for name in args}))
        kept: dict[str, Any] = {}
        for name in args:
            if not (name in again and _is_equal(again[name], values[name])):
                complete[name], is_kept = self._shown(args, name, values[name], complete[name])
                if is_kept:
                    kept[name] = values[name]
            if not _is_json(complete[name]):
                raise NotJsonError(f"a default within {name!r} has no JSON form")
        return complete, kept

    def _shown(
        self, args: Mapping[str, JSON], name: str, value: Any, form: JSON
    ) -> tuple[JSON, bool]:
        """Return what to show for a value, and whether that converts to another value."""
        words = _form(args[name], value, keeps_given=True)
        for shown in (form, words):
            with suppress(ValidationError, NotJsonError):
                again = self.values(self.convert({**args, name: shown}))[name]
                return shown, not _is_equal(again, value)
        return next(filter(_is_json, (form, words)), words), True

    def constant_defaults(self) -> dict[str, JSON]:
        """Return the defaults that no factory makes, by name.

        Raises:
            NotJsonError: one has no JSON form; the message names the argument.
        """
        fields = self.model.model_fields
        return {
            name: _default_json(name, fields[field].get_default())
            for field, name in self.names.items()
            if not fields[field].is_required() and fields[field].default_factory is None
        }


def _default_json(name: str, value: Any) -> JSON:
    try:
        default: JSON = plain_json(_written(_ABSENT, value))
    except Exception as error:  # serializers are user code
        raise NotJsonError(f"the default of {name!r} has no JSON form") from error
    return default


def _is_json(value: Any) -> bool:
    with suppress(NotJsonError):
        plain_json(value)
        return True
    return False


def _form(given: JSON, value: Any, *, keeps_given: bool = False) -> Any:
    """Return `_written`; the given JSON if there is no such form."""
    try:
        return _written(given, value, keeps_given=keeps_given)
    except Exception:  # noqa: BLE001 - boundary: a type of the user's own may not be writable
        return given


_ABSENT: Any = object()
_SCALARS = frozenset({str, int, float, bool, type(None)})


def _written(given: Any, value: Any, *, keeps_given: bool = False) -> Any:
    """Return a converted value as JSON: as it was given where both mean the same.

    Args:
        given: the JSON that was converted; `_ABSENT` for a default.
        value: the converted value.
        keeps_given: a scalar stays as it was given, whatever it was converted to.
    """
    write = partial(_written, keeps_given=keeps_given)
    inner = _inner_values(value, given)
    if isinstance(inner, dict):
        before = given if isinstance(given, Mapping) else {}
        return {key: write(before.get(key, _ABSENT), item) for key, item in inner.items()}
    if isinstance(inner, list):
        is_paired = isinstance(given, list) and len(given) == len(inner)
        return list(map(write, given if is_paired else [_ABSENT] * len(inner), inner))
    if given is _ABSENT:
        return to_jsonable_python(value)
    if keeps_given or type(value) not in _SCALARS:  # a date, say, is shown in the model's words
        return given
    is_same_float = type(value) is float and type(given) is int and given == value
    is_same = is_same_float or (type(given) is type(value) and given == value)
    return given if is_same else value


def _inner_values(value: Any, given: Any) -> dict[str, Any] | list[Any] | None:
    """Return what a converted value consists of, by its names in the JSON; None for a scalar."""
    if isinstance(value, RootModel):
        return _inner_values(value.root, given)
    fields = getattr(type(value), "__pydantic_fields__", None)
    if fields is not None:
        names = given if isinstance(given, Mapping) else {}
        extra = getattr(value, "__pydantic_extra__", None) or {}
        inner = {
            _json_name(name, field, names): getattr(value, name)
            for name, field in fields.items()
            if field.init is not False  # no argument: the class sets it
        }
        return inner | extra
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: getattr(value, field.name)
            for field in dataclass_fields(value)
            if field.init
        }
    if isinstance(value, Mapping):
        keys = (next(iter(to_jsonable_python({key: None}))) for key in value)
        return dict(zip(keys, value.values(), strict=True))
    if isinstance(value, set | frozenset):  # the items in the order in which they were given
        order = (
            {json_or_repr(item): i for i, item in enumerate(given)}
            if isinstance(given, list)
            else {}
        )
        texts = {item: json_or_repr(to_jsonable_python(item)) for item in value}
        return sorted(value, key=lambda item: (order.get(texts[item], len(order)), texts[item]))
    return list(value) if isinstance(value, list | tuple) else None


def _json_name(name: str, field: FieldInfo, given: Mapping[str, Any]) -> str:
    """Return the name of a model's field in the JSON: the one that was given, else its alias."""
    alias = field.validation_alias or field.alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias, name]
    names = [choice for choice in choices if isinstance(choice, str)]
    return next((choice for choice in names if choice in given), [*names, name][0])


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - boundary: `==` is user code
        return False


_EXACT = 2**53
"""Every integer up to this one is a float, too."""


def _has_big_integer(value: Any) -> bool:
    if isinstance(value, int):
        return not -_EXACT <= value <= _EXACT
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_big_integer, inner))


def _inexact_numbers(given: Any, value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield dotted path and value of the integers that are another number as a float."""
    inner = _inner_values(value, given)
    if isinstance(inner, dict) and isinstance(given, Mapping):
        for key in given.keys() & inner.keys():
            yield from _inexact_numbers(given[key], inner[key], f"{path}.{key}" if path else key)
    elif isinstance(inner, list) and isinstance(given, list):
        for i, (item, converted) in enumerate(zip(given, inner, strict=False)):
            yield from _inexact_numbers(item, converted, f"{path}.{i}")
    elif type(value) is float and isinstance(given, int):
        try:
            is_exact = float(given) == given
        except OverflowError:
            is_exact = False
        if not is_exact:
            yield path, given


def _arguments(
    tool_name: str,
    body: Any,
    parameters: Iterable[inspect.Parameter],
    texts: Mapping[str, str],
) -> _Arguments:
    arguments = [parameter for parameter in parameters if parameter.name != DEPS_PARAMETER]
    for parameter in arguments:
        if parameter.kind not in _POSITIONAL_OR_NAMED:
            raise RegistrationError(
                f"tool {tool_name!r}: {parameter} cannot come from JSON: name each argument"
            )
        if parameter.annotation is inspect.Parameter.empty:
            advice = (
                "register the bound method, as registry.tool()(object.method)"
                if parameter.name in {"self", "cls"} and parameter is arguments[0]
                else f"annotate it, such as {parameter.name}: str"
            )
            raise RegistrationError(f"tool {tool_name!r}: {parameter.name!r} has no type: {advice}")
    hints = _resolve_types(tool_name, body, {p.name: p.annotation for p in arguments})
    # by the code, as a session may define its functions anew
    origin = (tool_name, getattr(body, "__code__", None))
    shape = [(p.name, hints[p.name], p.default) for p in arguments]
    variants = _DERIVED.get(origin, [])
    for known_shape, known_texts, known in variants:
        if texts == known_texts and is_same_type(shape, known_shape):
            return known
    derived = _derived(tool_name, arguments, hints, texts)
    if len(_DERIVED) >= _MOST_DERIVED:
        _DERIVED.clear()
    _DERIVED[origin] = [*variants[-_MOST_VARIANTS:], (shape, dict(texts), derived)]
    return derived


_MOST_DERIVED, _MOST_VARIANTS = 1024, 4
_DERIVED: dict[Any, list[tuple[Any, Mapping[str, str], _Arguments]]] = {}
"""The arguments of functions that were registered before: pydantic takes a millisecond for each."""


def _derived(
    tool_name: str,
    arguments: Iterable[inspect.Parameter],
    hints: Mapping[str, Any],
    texts: Mapping[str, str],
) -> _Arguments:
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in arguments:
        is_reserved = parameter.name.startswith("_") or hasattr(BaseModel, parameter.name)
        field = f"argument {parameter.name}" if is_reserved else parameter.name
        names[field] = parameter.name
        default = parameter.default
        if default is inspect.Parameter.empty:
            default = Field()
        elif not isinstance(default, FieldInfo | DataclassField):
            default = Field(default)
        fields[field] = (_with_descriptions(hints[parameter.name]), default)
    config = ConfigDict(alias_generator=lambda field: names.get(field, field))
    try:
        model = create_model(f"{tool_name}_arguments", __config__=config, **fields)
        schema = _without_titles(model.model_json_schema())
    except PydanticUserError as error:
        raise RegistrationError(f"tool {tool_name!r}: no JSON Schema: {error.message}") from error
    except Exception as error:  # pydantic raises many classes
        raise RegistrationError(f"tool {tool_name!r}: no JSON Schema: {error}") from error
    in_json = dict(zip(model.model_fields, schema.get("properties", {}), strict=True))
    parameters_of = {in_json[field]: parameter for field, parameter in names.items()}
    described = {name: texts.get(parameter, "") for name, parameter in parameters_of.items()}
    for name in texts.keys() - {*names.values(), DEPS_PARAMETER, "self", "cls"}:
        if not name.startswith("*"):
            _log.warning(
                "tool %r: the docstring describes %r, which is no argument of it", tool_name, name
            )
    return _Arguments(model, _with_texts(schema, described), in_json, parameters_of)


def _with_texts(schema: Mapping[str, Any], texts: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a schema whose properties have these texts where they have no description."""
    properties = {
        name: {**part, "description": texts[name]}
        if texts[name] and not _is_described(part)
        else part
        for name, part in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties} if properties else schema


def _is_described(part: Mapping[str, Any]) -> bool:
    """Return whether an argument, or a type of its union, has a description of its own."""
    return "description" in part or any("description" in one for one in part.get("anyOf", ()))


def _require_json_defaults(tool_name: str, arguments: _Arguments) -> None:
    """Refuse a default that no confirmation card could show."""
    try:
        arguments.constant_defaults()
    except NotJsonError as error:
        raise RegistrationError(
            f"tool {tool_name!r}: {error}, and the user has to see what runs: give None or a JSON "
            "value"
        ) from error


def _resolve_types(tool_name: str, body: Any, annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the types of the arguments, those written as strings resolved."""
    try:
        return _type_hints(body, annotations)
    except NameError as error:
        raise RegistrationError(
            f"tool {tool_name!r}: the type {error.name!r} of an argument is unknown: define it "
            "above the tool"
        ) from error
    except Exception as error:  # an annotation may be any text or object
        raise RegistrationError(
            f"tool {tool_name!r}: the type of an argument is invalid: {error}. Annotate it with a "
            "type, such as str"
        ) from error


def _type_hints(body: Any, annotations: Mapping[str, Any]) -> dict[str, Any]:
    annotated: Any = SimpleNamespace(__annotations__=dict(annotations))
    names = getattr(body, "__globals__", {})
    return get_type_hints(annotated, globalns=names, include_extras=True)


def _with_descriptions(hint: Any) -> Any:
    """Return a type with the text of `Annotated[str, "text"]` as the field's description."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        texts = [getattr(item, "documentation", item) for item in hint.__metadata__]
        text = " ".join(text for text in texts if isinstance(text, str))
        # first, so that the description of a Field(...) wins
        described = (Field(description=text),) if text else ()
        return Annotated[(_with_descriptions(inner[0]), *described, *hint.__metadata__)]
    if origin in {Union, UnionType}:
        return Union[tuple(map(_with_descriptions, inner))]  # noqa: UP007 - of a tuple
    if isinstance(hint, GenericAlias):
        return GenericAlias(origin, tuple(map(_with_descriptions, inner)))
    return hint


_RESULT_TYPES = (Mapping, ToolOk, ToolErr, ToolCancelled)


def _result_type(tool_name: str, function: Any, body: Any) -> TypeAdapter[Any] | None:
    """Return the serializer of returned values that are neither a mapping nor a `ToolResult`.

    None if the function has no return annotation, or returns only mappings and results.
    """
    function = function.func if isinstance(function, partial) else function
    try:
        annotations = {"return": inspect.signature(function).return_annotation}
        hint = _type_hints(body, annotations)["return"]
    except Exception:  # noqa: BLE001 - boundary: an annotation may be any text or object
        return None
    if get_origin(hint) in {Awaitable, Coroutine}:
        hint = get_args(hint)[-1]
    members = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    others = [member for member in members if not _is_result(member)]
    if not others:
        return None
    try:
        union: Any = Union[tuple(others)]  # noqa: UP007 - of a tuple
        return TypeAdapter(union)
    except Exception as error:
        if hint is others[0] and isinstance(hint, type):
            raise RegistrationError(
                f"tool {tool_name!r}: a {hint.__name__} cannot be written as JSON: return a dict, "
                "a string, a number or a list"
            ) from error
        return None


def _is_result(hint: Any) -> bool:
    kind = get_origin(hint) or hint
    if kind in {inspect.Signature.empty, Any, object, NoReturn, Never}:
        return True
    return isinstance(kind, type) and issubclass(kind, _RESULT_TYPES)


def _without_titles(schema: Any) -> Any:
    """Return a schema without pydantic's generated titles, which cost tokens for nothing.

    A property named `title`, or such a key in a default value, stays.
    """
    if not isinstance(schema, Mapping):
        return schema
    inner = with_subschemas(schema, _without_titles)
    return {key: value for key, value in inner.items() if key != "title"}


@dataclass(frozen=True, slots=True)
class FunctionHandler:
    """The handler of a function; `check` keeps the converted arguments for the run."""

    function: Callable[..., Any]
    arguments: _Arguments
    result_type: TypeAdapter[Any] | None
    takes_deps: bool

    def check(self, args: Mapping[str, JSON]) -> Invalid | PreparedCall:
        """Return the call with converted arguments, or why pydantic refuses them."""
        try:
            converted = self.arguments.convert(args)
        except NotJsonError as error:
            return invalid("(all)", "shorter numbers", str(error))
        except ValidationError as error:
            issue = error.errors(include_url=False, include_context=False)[0]
            field = ".".join(map(str, issue["loc"])) or "(all)"
            expected = issue["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            return invalid(field, expected, issue["input"])
        values = self.arguments.values(converted)
        if _has_big_integer(args):
            for field, number in _inexact_numbers(args, values):
                return invalid(field, "a number that a float represents exactly", number)
        return PreparedCall(
            handler=self,
            call=self._run,
            values=values,
            complete=partial(self._complete, args, converted),
        )

    def _complete(
        self, args: Mapping[str, JSON], converted: BaseModel
    ) -> Invalid | tuple[Mapping[str, JSON], PreparedCall]:
        try:
            complete, kept = self.arguments.complete(args, converted)
        except NotJsonError as error:
            return invalid("(all)", "a default that can be shown", str(error))
        prepared = self.check({n: args[n] if n in kept else complete[n] for n in args})
        if isinstance(prepared, Invalid):
            return prepared
        values = self.arguments.values(converted)
        defaults = {name: value for name, value in values.items() if name not in args}
        return complete, prepared.with_values(defaults | kept)

    async def __call__(self, args: Mapping[str, JSON], deps: Any) -> ToolResult:
        """Call the function; an argument that equals its default is the default itself."""
        running = running_call.get()
        prepared = None if running is None else running.prepared
        if running is not None and prepared is not None and prepared.handler is self:
            running_call.set(None)  # once: a function may change what it gets
            if json_or_repr(args) == json_or_repr(running.args):
                return cast("ToolResult", await prepared.run(deps))
        with suppress(NotJsonError):
            defaults = self.arguments.constant_defaults()
            args = {
                name: value
                for name, value in args.items()
                if name not in defaults or json_or_repr(defaults[name]) != json_or_repr(value)
            }
        return await self._run(self.arguments.values(self.arguments.convert(args)), deps)

    async def _run(self, values: Mapping[str, Any], deps: Any) -> ToolResult:
        passed = {self.arguments.parameters[name]: value for name, value in values.items()}
        if self.takes_deps:
            passed[DEPS_PARAMETER] = deps
        returned = self.function(**passed)
        if inspect.isawaitable(returned):
            returned = await returned
        if isinstance(returned, Mapping):
            return ToolOk(returned)
        if self.result_type is None or isinstance(returned, _RESULT_TYPES):
            return cast("ToolResult", returned)  # the dispatcher refuses other types
        try:
            value = self.result_type.dump_python(
                returned, mode="json", by_alias=True, warnings="error"
            )
        except PydanticSerializationError:
            return cast("ToolResult", returned)  # not of the annotated type: refused as well
        return ToolOk(value if isinstance(value, Mapping) else {"result": value})
