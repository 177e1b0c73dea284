"""Names in a help text that are only known after a slow import: filled in when help is shown."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from lhkit.cli.examples import named_commands

DIALECTS = "{dialects}"
"""Stands in a help text for the names of all dialects but `openai`."""


class _LateHelp(TyperCommand):
    def get_help(self, ctx: Any) -> str:
        for option in self.params:
            if isinstance(option, TyperOption) and option.help:
                option.help = _filled(option.help)
        return super().get_help(ctx)


def fill_late(cli: typer.Typer) -> None:
    """Let every command of `cli` fill in the names when its help is shown."""
    for _, command in named_commands(cli):
        command.cls = _LateHelp


def _filled(told: str) -> str:
    if DIALECTS not in told:
        return told
    from lhkit.models import dialects  # noqa: PLC0415 - jsonschema

    return told.replace(DIALECTS, ", ".join(dialects.DIALECTS))
