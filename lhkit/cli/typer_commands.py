"""How typer makes commands: options from the fields of a class, help filled in, no empty values."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import pairwise
from types import GenericAlias
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandInfo

from lhkit.cli.options import DIALECTS

_MAY_BE_EMPTY = "--stress"
"""Of all options the one that nothing is a value of: no stress."""


def spelt_out(command: Callable[[Any], None]) -> Callable[..., None]:
    """Return a command that takes one by one the fields of the only value that `command` takes.

    They are the fields that typer is told about: of a type `Annotated[X, typer.Option(…)]`. Typer
    knows no tuples of any length, so it is told of a list.
    """
    (taken,) = signature(command).parameters.values()
    options, parameters, lists = taken.annotation, [], set[str]()
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        told, spelling = get_args(hints[field.name])
        default = Parameter.empty if field.default is MISSING else field.default
        if get_origin(told) is tuple:
            told, default = GenericAlias(list, get_args(told)[:1]), default or None
            lists.add(field.name)
        parameters.append(
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[told, spelling],
            )
        )

    @wraps(command)
    def called(**given: Any) -> None:
        given |= {name: tuple(given[name] or ()) for name in lists}
        command(options(**given))

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return called


def named_commands(cli: typer.Typer, prefix: str = "") -> Iterator[tuple[str, CommandInfo]]:
    """Yield every command with its full name, such as `chats show`."""
    for command in cli.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        yield f"{prefix}{name}", command
    for group in cli.registered_groups:
        if group.typer_instance is not None:
            yield from named_commands(group.typer_instance, f"{prefix}{group.name} ")


def finish_commands(cli: typer.Typer) -> None:
    """Let every command of `cli` fill in names when its help is shown, and refuse empty values."""
    for _, command in named_commands(cli):
        command.cls = _Command


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _refuse_empty(args, ctx)
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        for option in self.params:
            if isinstance(option, TyperOption) and option.help:
                option.help = _filled(option.help)
        return super().get_help(ctx)


def _refuse_empty(args: Sequence[str], ctx: Any) -> None:
    """Refuse what a script gives whose variable is not set: it would be left out in silence.

    Raises:
        typer.BadParameter: a value is empty.
    """
    for before, word in pairwise(("", *args)):
        is_joined = word.startswith("--") and word.endswith("=")  # --option=
        option = word[:-1] if is_joined else before if before.startswith("-") else "an argument"
        if (is_joined or not word) and option != _MAY_BE_EMPTY:
            raise typer.BadParameter(f"{option} is empty: give it a value or leave it out", ctx=ctx)


def _filled(told: str) -> str:
    if DIALECTS not in told:
        return told
    from lhkit.models import dialects

    return told.replace(DIALECTS, ", ".join(dialects.DIALECTS))
