"""Register tools by name: an explicit mapping that is passed in, never a module global."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar
from weakref import WeakMethod

from lhkit.confirm.summary import Summarizer
from lhkit.errors import RegistrationError
from lhkit.json_values import JSON, NotJsonError, compact
from lhkit.tools.definition import DEFAULT_TIMEOUT_S, TODAY, Handler, ToolDefinition
from lhkit.tools.drafts import upgraded
from lhkit.tools.functions import definition_of
from lhkit.tools.json_schema import Draft202012Validator, SchemaError
from lhkit.tools.schema import KnownKeys, SchemaNode
from lhkit.tools.schema_faults import schema_fault
from lhkit.tools.validation import ArgumentValidator, value_fault

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What OpenAI's API and MCP both allow."""

Function = TypeVar("Function", bound=Callable[..., Any])


Change: TypeAlias = Callable[[ToolDefinition], ToolDefinition]
_Take: TypeAlias = Callable[[ToolDefinition, ArgumentValidator], None]


def _as_it_is(tool: ToolDefinition) -> ToolDefinition:
    return tool


class ToolRegistry(Mapping[str, ToolDefinition]):
    """Tools by name, in order of registration. Look-up is O(1).

    Raises:
        RegistrationError: at once, for a bad definition; the message names tool and fault.
    """

    def __init__(self, definitions: Iterable[ToolDefinition] = ()) -> None:
        self._definitions: dict[str, ToolDefinition] = {}
        self._validators: dict[str, ArgumentValidator] = {}
        self._followers: list[tuple[WeakMethod[_Take], Change]] = []
        self.left_out: dict[str, str] = {}
        """Tools that a server offers and that cannot be registered, by name, with the reason."""
        for definition in definitions:
            self.register(definition)

    def __getitem__(self, name: str) -> ToolDefinition:
        return self._definitions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._definitions)

    def __len__(self) -> int:
        return len(self._definitions)

    @property
    def definitions(self) -> tuple[ToolDefinition, ...]:
        """All definitions, in order of registration."""
        return tuple(self._definitions.values())

    @property
    def destructive(self) -> frozenset[str]:
        """Names of the tools that change data."""
        return frozenset(tool.name for tool in self.definitions if tool.is_destructive)

    def validator(self, name: str) -> ArgumentValidator:
        """Return the compiled validator of a registered tool.

        Raises:
            KeyError: if there is no such tool.
        """
        return self._validators[name]

    def with_handlers(self, handlers: Mapping[str, Handler]) -> "ToolRegistry":
        """Return the same tools, of which those that are named have another handler.

        As `following`: later ones, too.
        """

        def handled(tool: ToolDefinition) -> ToolDefinition:
            return replace(tool, handler=handlers[tool.name]) if tool.name in handlers else tool

        return self.following(handled)

    def following(self, change: Change) -> "ToolRegistry":
        """Return the same tools, each as `change` gives it, and so those registered here later.

        Nothing is checked again: schemas and names are those that were registered here.
        """
        same = ToolRegistry()
        same.left_out = self.left_out
        for name, tool in self.items():
            same._take(change(tool), self._validators[name])
        same.follow(self, change)
        return same

    def follow(self, other: "ToolRegistry", change: Change | None = None) -> None:
        """Take over what is registered in another registry from now on.

        A tool that comes so takes the place of one that has its name.

        Args:
            other: the registry.
            change: gives a tool as it is to be here; as it is there if left out.
        """
        other._tell(WeakMethod(self._take), change or _as_it_is)

    def _tell(self, take: WeakMethod[_Take], change: Change) -> None:
        self._followers = [each for each in self._followers if each[0]() is not None]
        self._followers.append((take, change))

    def _take(self, definition: ToolDefinition, validator: ArgumentValidator) -> None:
        self._definitions[definition.name] = definition
        self._validators[definition.name] = validator
        for follower, change in self._followers:
            take = follower()
            if take is not None:
                take(change(definition), validator)

    def register(self, definition: ToolDefinition) -> ToolDefinition:
        """Add a tool and return its definition; a schema of an older draft is rewritten.

        Raises:
            RegistrationError: bad name, duplicate, or a schema that is no valid object schema.
        """
        definition = _registrable(definition, taken=self._definitions)
        self._take(definition, ArgumentValidator(definition.parameters, definition.check))
        return definition

    def tool(
        self,
        *misplaced: object,
        destructive: bool = False,
        name: str | None = None,
        description: str | None = None,
        summarize: Summarizer | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        implied: Mapping[str, JSON] | None = None,
        repeatable: bool = False,
        claims: Mapping[str, Sequence[str]] | None = None,
    ) -> Callable[[Function], Function]:
        """Return a decorator that registers a typed, documented function and leaves it as it is.

        The schema comes from the annotations as pydantic reads them: `Annotated[int, Field(ge=1)]`
        and `n: int = Field(ge=1)` give bounds, `Annotated[str, "text"]` a description. The tool's
        description comes from the docstring, unless `description` is given: tools in several
        languages are the same functions with other words. A parameter named `deps` receives the
        dependencies and is not part of the schema. `implied` says what a left-out argument means
        where the function fills it in; `repeatable`, that the same call again is no mistake;
        `claims`, how the success of a write is told (all as in `ToolDefinition`).

        A function returns a mapping or a `ToolResult`. One that is annotated with another type,
        such as `-> str` or `-> list[str]`, may return that: the model reads `{"result": …}`.

        A bound method, a `functools.partial` (what it binds is fixed and not in the schema) and a
        callable object (give `name`) are registered by calling what this returns.

        Raises:
            RegistrationError: if it stands there without parentheses, the function has no
                docstring or description, or a parameter no type or one without a JSON Schema.
        """
        if misplaced:
            raise RegistrationError(_unbracketed(misplaced[0]))

        def register(function: Function) -> Function:
            definition = definition_of(
                function,
                name=name,
                description=description,
                is_destructive=destructive,
                summarize=summarize,
                timeout_s=timeout_s,
                implied=implied or {},
                repeatable=repeatable,
                claims=claims or {},
            )
            self.register(definition)
            return function

        return register


def _unbracketed(given: object) -> str:
    name = getattr(given, "__name__", given)
    return (
        f"tool {name!r}: write @registry.tool() with its parentheses; options stand in them by "
        "name, such as destructive=True for a tool that changes data"
    )


def _registrable(
    definition: ToolDefinition, *, taken: Mapping[str, ToolDefinition]
) -> ToolDefinition:
    """Return a definition that was checked, its schema in Draft 2020-12."""
    name: Any = definition.name
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        raise RegistrationError(f"tool {name!r}: the name must match {NAME_PATTERN.pattern}")
    if name in taken:
        raise RegistrationError(
            f"tool {name!r}: a tool of that name is already registered: rename one"
        )
    if not definition.description.strip():
        raise RegistrationError(f"tool {name!r}: the description is empty: the model needs it")
    if not callable(definition.handler):
        raise RegistrationError(f"tool {name!r}: the handler is not callable")
    if not definition.timeout_s > 0:
        raise RegistrationError(f"tool {name!r}: timeout_s must be above 0 seconds")
    schema = _checked_schema(name, definition.parameters)
    if schema is not definition.parameters:
        definition = replace(definition, parameters=schema)
    for fault in _scoring_faults(definition):
        raise RegistrationError(f"tool {name!r}: {fault}")
    return definition


def _scoring_faults(definition: ToolDefinition) -> Iterator[str]:
    """Yield what is wrong with what only scorers are told of a tool."""
    for argument, value in definition.implied.items():
        if fault := _implied_fault(definition.parameters, argument, value):
            yield f"implied {argument!r}: {fault}"
    for locale, words in definition.claims.items():
        if fault := _claims_fault(words, writes=definition.is_destructive):
            yield f"claims[{locale!r}]: {fault}"


def _implied_fault(schema: Mapping[str, Any], argument: str, value: Any) -> str | None:
    if argument not in KnownKeys.of(schema).names:
        return "there is no such argument"
    branches = SchemaNode.of(schema).branches()
    if all(argument in branch.get("required", ()) for branch in branches):
        return "it is required, so it is never left out"
    return None if value == TODAY else value_fault(schema, argument, value)


def _claims_fault(words: Any, *, writes: bool) -> str | None:
    if not writes:
        return "the tool changes nothing: only a destructive tool has a success to claim"
    if isinstance(words, str) or not isinstance(words, Sequence):
        return 'give a list of words, such as ["sent", "texted"]'
    for each in words:
        try:
            matches_nothing = re.search(each, "") is not None
        except (TypeError, re.error) as error:
            return f"{each!r} is neither words nor a regular expression ({error})"
        if matches_nothing:
            return f"{each!r} matches an empty text: every reply would claim success"
    return None


def _checked_schema(name: str, schema: Any) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise RegistrationError(f'tool {name!r}: the schema must have "type": "object" at its top')
    if fault := _untold(schema):
        raise RegistrationError(f"tool {name!r}: {fault}")
    try:
        latest = upgraded(schema)
        Draft202012Validator.check_schema(latest)
    except SchemaError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "top"
        raise RegistrationError(
            f"tool {name!r}: invalid JSON Schema at {where}: {error.message}"
        ) from error
    except RecursionError as error:
        raise RegistrationError(f"tool {name!r}: the schema is nested too deeply") from error
    if fault := schema_fault(latest):
        raise RegistrationError(f"tool {name!r}: {fault}")
    return latest


def _untold(schema: Mapping[str, Any]) -> str | None:
    """Return what a model cannot be told of a schema, since JSON cannot carry it; None: nothing."""
    named = schema.get("properties")
    arguments = named if isinstance(named, Mapping) else {}
    parts = {f"argument {name!r}": told for name, told in arguments.items()}
    for place, told in {**parts, "the schema": schema}.items():
        try:
            compact(told)
        except NotJsonError as error:
            return f"{place}: {error}"
    return None
