"""The registry of tools: an explicit mapping by name, passed to whatever uses it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar
from weakref import WeakMethod

from lhkit.base.errors import RegistrationError
from lhkit.base.json_values import JSON
from lhkit.confirm.summary import Summarizer
from lhkit.tools.definition import DEFAULT_TIMEOUT_S, Rule, ToolDefinition
from lhkit.tools.functions import tool_from_function
from lhkit.tools.registration import check_definition
from lhkit.tools.rules import rule_issue
from lhkit.tools.validation import ArgumentValidator

Function = TypeVar("Function", bound=Callable[..., Any])

Change: TypeAlias = Callable[[ToolDefinition], ToolDefinition]
_Add: TypeAlias = Callable[[ToolDefinition, ArgumentValidator], None]


class ToolRegistry(Mapping[str, ToolDefinition]):
    """Tools by name, in order of registration.

    Attributes:
        left_out: tools of an MCP server that cannot be registered: name to reason.
        cut_descriptions: lengths of the descriptions that are cut: name to characters.

    Example:
        ```
        registry = ToolRegistry()

        @registry.tool(destructive=True)
        def send(to: str, text: str) -> dict[str, str]:
            "Send a message."
            return {"sent_to": to}
        ```

    Raises:
        RegistrationError: a definition is invalid; the message names the tool and the issue.
    """

    def __init__(self, definitions: Iterable[ToolDefinition] = ()) -> None:
        self._definitions: dict[str, ToolDefinition] = {}
        self._validators: dict[str, ArgumentValidator] = {}
        self._followers: list[tuple[WeakMethod[_Add], Change]] = []
        self.left_out: dict[str, str] = {}
        self.cut_descriptions: dict[str, int] = {}
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
        """Return the compiled argument validator of a registered tool.

        Raises:
            KeyError: there is no such tool.
        """
        return self._validators[name]

    def mapped(self, change: Change) -> "ToolRegistry":
        """Return a registry with `change` applied to each tool, also to those registered later.

        Args:
            change: returns the definition to use; its name and schema must stay the same, since
                nothing is checked again. Example: `lambda tool: replace(tool, handler=fake)`.
        """
        registry = ToolRegistry()
        registry.left_out, registry.cut_descriptions = self.left_out, self.cut_descriptions
        for name, tool in self.items():
            registry._add(change(tool), self._validators[name])
        self._add_follower(registry, change)
        return registry

    def follow(self, other: "ToolRegistry") -> None:
        """Add each tool that is registered in `other` from now on; it replaces one of its name."""
        other._add_follower(self, lambda tool: tool)

    def _add_follower(self, registry: "ToolRegistry", change: Change) -> None:
        self._followers = [pair for pair in self._followers if pair[0]() is not None]
        self._followers.append((WeakMethod(registry._add), change))

    def _add(self, definition: ToolDefinition, validator: ArgumentValidator) -> None:
        self._definitions[definition.name] = definition
        self._validators[definition.name] = validator
        for follower, change in self._followers:
            if add := follower():
                add(change(definition), validator)

    def register(self, definition: ToolDefinition) -> ToolDefinition:
        """Add a tool; return its definition, with its schema as Draft 2020-12.

        Raises:
            RegistrationError: the name is invalid or taken, or the definition is invalid.
        """
        definition = check_definition(definition)
        if definition.name in self._definitions:
            raise RegistrationError(
                f"tool {definition.name!r}: a tool of that name is already registered: rename one"
            )
        self._add(definition, ArgumentValidator(definition.parameters, definition.check))
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
        always_ask: bool = False,
        check: Rule | None = None,
        title: str | Mapping[str, str] = "",
    ) -> Callable[[Function], Function]:
        """Return a decorator that registers a typed, documented function, and returns it unchanged.

        pydantic derives the schema from the annotations: `Annotated[int, Field(ge=1)]` or
        `n: int = Field(ge=1)` for bounds, `Annotated[str, "text"]` for a description; else the
        docstring's text on the parameter (`Args:`, in Google, NumPy or Sphinx style) is that. A
        parameter named `deps` receives the dependencies and is not in the schema.

        The function returns a mapping or a `ToolResult`. With another return annotation, such as
        `-> str` or `-> list[str]`, it may return that: the model reads `{"result": …}`.

        For a bound method, a `functools.partial` (the arguments that it binds are not in the
        schema) or a callable object (give `name`), call the decorator: `registry.tool()(method)`.

        Args:
            misplaced: nothing; catches `@registry.tool` without parentheses.
            destructive: the tool changes data, so the user is asked before each call.
            name: by default the function's name.
            description: by default the first paragraph of the docstring, without its `Args:`.
            summarize: as in `ToolDefinition`, like the options below.
            timeout_s: limit for the function, in seconds.
            implied: values of arguments that the function fills in when they are left out.
            repeatable: the same call twice in a row is intended.
            claims: words in which a reply reports success, by language.
            always_ask: no policy of approvals may let a call run without a question.
            check: a rule that may refuse a call before the user is asked: gets the arguments as
                the card shows them and, with a second parameter, the dependencies; returns None
                or the `ToolErr` that refuses. See `check` below to add one to several tools.
            title: a short name for people, which heads the card in place of the description: a
                text, or one for each language.

        Raises:
            RegistrationError: the parentheses are missing, the function has neither docstring nor
                description, or a parameter has no type or one without a JSON Schema.
        """
        if misplaced:
            raise RegistrationError(
                f"tool {getattr(misplaced[0], '__name__', misplaced[0])!r}: write @registry.tool() "
                "with parentheses; options go in them by name, such as destructive=True for a tool "
                "that changes data"
            )

        def register(function: Function) -> Function:
            definition = tool_from_function(
                function,
                name=name,
                description=description,
                is_destructive=destructive,
                summarize=summarize,
                timeout_s=timeout_s,
                implied=implied or {},
                repeatable=repeatable,
                claims=claims or {},
                always_ask=always_ask,
                rules=() if check is None else (check,),
                title=title,
            )
            self.register(definition)
            return function

        return register

    def check(self, *names: str) -> Callable[[Function], Function]:
        """Return a decorator that adds a rule to tools which are registered already.

        The rule is that of `tool(check=…)`. Rules run in the order in which they were added; the
        first refusal counts.

        Example:
            ```
            @registry.check("delete_note", "share_note")
            def needs_a_search(args: dict, deps: Notes) -> ToolErr | None:
                if args["note_id"] not in deps.found:
                    return ToolErr("r1_search_first", "Search first: use an id that it returned.")
            ```

        Args:
            names: the tools.

        Raises:
            RegistrationError: no name is given, one is unknown, or the function cannot be a rule.
        """
        if not names or not all(isinstance(name, str) for name in names):
            raise RegistrationError('check: name the tools, such as @registry.check("delete_note")')
        for name in names:
            if name not in self._definitions:
                known = ", ".join(self) or "none"
                raise RegistrationError(
                    f"check: there is no tool {name!r} yet: register it first (there is {known})"
                )

        def add(function: Function) -> Function:
            if issue := rule_issue(function):
                raise RegistrationError(f"check of {', '.join(names)}: {issue}")
            for tool in map(self.__getitem__, dict.fromkeys(names)):
                changed = replace(tool, rules=(*tool.rules, function))
                self._add(changed, self._validators[tool.name])
            return function

        return add
