"""Which tools there are: an explicit mapping that is passed in, never a module global."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from lhkit.confirm.summary import Summarizer
from lhkit.errors import RegistrationError
from lhkit.tools.definition import DEFAULT_TIMEOUT_S, TODAY, ToolDefinition
from lhkit.tools.schema import Declared, SchemaNode
from lhkit.tools.schema_fault import schema_fault
from lhkit.tools.validation import ArgumentValidator, value_fault
from lhkit.vocab.json_values import JSON

NAME_PATTERN = re.compile(r"[a-z][a-z0-9_]{0,63}")

Function = TypeVar("Function", bound=Callable[..., Any])


class ToolRegistry(Mapping[str, ToolDefinition]):
    """Tools by name, in order of registration. Look-up is O(1).

    Raises:
        RegistrationError: at once, for a bad definition; the message names tool and fault.
    """

    def __init__(self, definitions: Iterable[ToolDefinition] = ()) -> None:
        self._definitions: dict[str, ToolDefinition] = {}
        self._validators: dict[str, ArgumentValidator] = {}
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

    def register(self, definition: ToolDefinition) -> ToolDefinition:
        """Add a tool and return its definition.

        Raises:
            RegistrationError: bad name, duplicate, or a schema that is no valid object schema.
        """
        _check(definition, taken=self._definitions)
        self._definitions[definition.name] = definition
        self._validators[definition.name] = ArgumentValidator(
            definition.parameters, definition.check
        )
        return definition

    def tool(
        self,
        *misplaced: object,
        destructive: bool = False,
        name: str | None = None,
        summarize: Summarizer | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        implied: Mapping[str, JSON] | None = None,
    ) -> Callable[[Function], Function]:
        """Return a decorator that registers a typed, documented function and leaves it as it is.

        The schema comes from the annotations (pydantic; `Annotated[int, Field(ge=1)]` gives
        bounds), the description from the docstring. A parameter named `deps` receives the
        dependencies and is not part of the schema. `implied` says what a left-out argument means
        where the function fills it in (`ToolDefinition`).

        Raises:
            RegistrationError: if it stands there without parentheses, the function has no
                docstring, or a parameter no type.
        """
        if misplaced:
            raise RegistrationError(_unbracketed(misplaced[0]))
        from lhkit.tools.from_function import definition_of  # noqa: PLC0415 - pydantic is slow

        def register(function: Function) -> Function:
            definition = definition_of(
                function,
                name=name,
                is_destructive=destructive,
                summarize=summarize,
                timeout_s=timeout_s,
                implied=implied or {},
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


def _check(definition: ToolDefinition, *, taken: Mapping[str, ToolDefinition]) -> None:
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
    _check_schema(name, definition.parameters)
    for argument, value in definition.implied.items():
        fault = _implied_fault(definition.parameters, argument, value)
        if fault is not None:
            raise RegistrationError(f"tool {name!r}: implied {argument!r}: {fault}")


def _implied_fault(schema: Mapping[str, Any], argument: str, value: Any) -> str | None:
    if argument not in Declared.of(schema).names:
        return "there is no such argument"
    branches = SchemaNode.of(schema).branches()
    if all(argument in branch.get("required", ()) for branch in branches):
        return "it is required, so it is never left out"
    return None if value == TODAY else value_fault(schema, argument, value)


def _check_schema(name: str, schema: Any) -> None:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise RegistrationError(f'tool {name!r}: the schema must have "type": "object" at its top')
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = "/".join(str(part) for part in error.absolute_path) or "top"
        raise RegistrationError(
            f"tool {name!r}: invalid JSON Schema at {where}: {error.message}"
        ) from error
    except RecursionError as error:
        raise RegistrationError(f"tool {name!r}: the schema is nested too deeply") from error
    fault = schema_fault(schema)
    if fault is not None:
        raise RegistrationError(f"tool {name!r}: {fault}")
