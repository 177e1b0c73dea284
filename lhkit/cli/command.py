"""How a function becomes a command: its parameters are the options.

A command is a module of this package whose docstring begins with its name, such as
"`lhkit lint`: check scenarios …". In it, `command` marks the function that runs; with a `name` it
is one of several, such as `lhkit chats list`. A parameter is an option or an argument if its type
is `Annotated` with a `typer.Option`, a `typer.Argument` or a described pydantic `Field`. One whose
type is a pydantic model stands for the model's fields. `settings` is passed to all.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from inspect import Parameter, Signature, cleandoc, signature
from itertools import pairwise
from types import GenericAlias, ModuleType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

from lhkit.cli.finish import Run, finish
from lhkit.settings import validate_options

_Function = TypeVar("_Function", bound=Callable[..., Coroutine[Any, Any, int]])


class Options(BaseModel):
    """Options of a command as one value."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_MAY_BE_EMPTY = "--stress"
"""The only option that may have an empty value: no stress."""


def command(*examples: str, name: str = "") -> Callable[[_Function], _Function]:
    """Mark an async function as the command of its module; it returns the exit code.

    Args:
        examples: lines that are shown under the help of the command.
        name: the command in a group, such as `list` of `lhkit chats list`; the docstring of the
            function is then its help.
    """

    def mark(function: _Function) -> _Function:
        function.__dict__["examples"], function.__dict__["command_name"] = examples, name
        return function

    return mark


def typer_of(module: ModuleType, name: str, summary: str, run: Run) -> typer.Typer:
    """Return the command or the group of a module.

    Args:
        module: a module of this package.
        name: the name of its command.
        summary: the help of the command or the group.
        run: runs a coroutine to its end.
    """
    marked = [each for each in vars(module).values() if hasattr(each, "command_name")]
    found = typer.Typer(add_completion=False, no_args_is_help=True)
    for function in marked:
        in_group = function.command_name
        found.command(
            in_group or name,
            cls=_Command,
            help=cleandoc(function.__doc__).partition("\n\n")[0] if in_group else summary,
            epilog=shown_examples(function.examples),
        )(_callback(function, run))
    if marked[0].command_name:
        firsts = (each.examples[0] for each in marked)
        found.callback(help=summary, epilog=shown_examples(firsts))(lambda: None)
    return found


def shown_examples(lines: Iterator[str] | Sequence[str]) -> str:
    """Return examples as they are shown under a help text."""
    return "\n".join(f"$ {line}" for line in lines)


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse the empty value of an unset variable in a script, which would have no effect."""
        for before, word in pairwise(("", *args)):
            is_joined = word.startswith("--") and word.endswith("=")  # --option=
            option = word[:-1] if is_joined else before if before.startswith("-") else "an argument"
            if (is_joined or not word) and option != _MAY_BE_EMPTY:
                reason = f"{option} is empty: give it a value or leave it out"
                raise typer.BadParameter(reason, ctx=ctx)
        return super().parse_args(ctx, args)


def _callback(function: Callable[..., Any], run: Run) -> Callable[..., None]:
    """Return what typer calls: it takes the options one by one."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[Parameter] = []
    models: dict[str, type[BaseModel]] = {}
    for name, given in signature(function).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, BaseModel) and name != "settings":
            models[name] = hint
            for field_name, field in hint.model_fields.items():
                default = Parameter.empty if field.is_required() else field.get_default()
                parameters += _parameter(field_name, field.annotation, [field], default)
        elif get_origin(hint) is Annotated:
            kind, *metadata = get_args(hint)
            parameters += _parameter(name, kind, metadata, given.default)

    def called(**given: Any) -> None:
        values = {name: value for name, value in given.items() if value is not None}

        def started(settings: Any) -> Coroutine[Any, Any, int]:
            made = {
                name: validate_options(
                    model, **{k: v for k, v in values.items() if k in model.model_fields}
                )
                for name, model in models.items()
            }
            inside = {field for model in models.values() for field in model.model_fields}
            others = {name: value for name, value in values.items() if name not in inside}
            coroutine: Coroutine[Any, Any, int] = function(**others, **made, settings=settings)
            return coroutine

        finish(run, started)

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


def _parameter(name: str, kind: Any, metadata: Sequence[Any], default: Any) -> Iterator[Parameter]:
    """Yield an option or an argument as typer takes it; nothing for a field that is neither."""
    found = next(filter(None, (_option(each, name, kind) for each in metadata)), None)
    if found is not None:
        yield Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=None if default == () else default,
            annotation=Annotated[_plain(kind), found],
        )


def _option(metadata: Any, name: str, kind: Any) -> OptionInfo | ArgumentInfo | None:
    """Return the option that a part of an annotation describes."""
    if isinstance(metadata, OptionInfo | ArgumentInfo):
        return metadata
    if not isinstance(metadata, FieldInfo):
        return None
    for each in metadata.metadata:
        if isinstance(each, OptionInfo | ArgumentInfo):
            return each
    if metadata.description is None:
        return None
    bounds = {name: getattr(each, name) for each in metadata.metadata for name in _bounds(each)}
    more: Any = metadata.json_schema_extra or {}
    is_flag = kind is bool  # without --no-…
    flag = more.get("option") or (f"--{name.replace('_', '-')}" if is_flag else None)
    option: OptionInfo = typer.Option(
        *((flag,) if flag else ()),
        help=metadata.description,
        min=bounds.get("ge"),
        max=bounds.get("le"),
        metavar=more.get("metavar"),
    )
    return option


def _bounds(metadata: Any) -> list[str]:
    return [name for name in ("ge", "le") if hasattr(metadata, name)]


def _plain(kind: Any) -> Any:
    """Return a type that typer knows: words for a choice, a list for a tuple of any length."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _plain(inner[0])
    if origin is Literal:
        return str
    if origin is tuple:
        return GenericAlias(list, (_plain(inner[0]),))
    if origin in {Union, UnionType}:
        (one,) = [each for each in inner if each is not type(None)]
        return _plain(one) | None
    return kind
