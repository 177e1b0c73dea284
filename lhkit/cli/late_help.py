"""What every command has: help with names that come from slow imports, and no empty values."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from lhkit.cli.examples import named_commands

DIALECTS = "{dialects}"
"""Stands in a help text for the names of all dialects but `openai`."""


_MAY_BE_EMPTY = "--stress"
"""Of all options the one that nothing is a value of: no stress."""


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


def finish_commands(cli: typer.Typer) -> None:
    """Let every command of `cli` fill in names when its help is shown, and refuse empty values."""
    for _, command in named_commands(cli):
        command.cls = _Command


def _filled(told: str) -> str:
    if DIALECTS not in told:
        return told
    from lhkit.models import dialects  # noqa: PLC0415 - jsonschema

    return told.replace(DIALECTS, ", ".join(dialects.DIALECTS))
