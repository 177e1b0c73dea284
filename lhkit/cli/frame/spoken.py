"""Typer's own words in the language of the user: usage, panels, `--help` and usage errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from lhkit.base.locales.messages import translate

_PANELS = {
    "ARGUMENTS_PANEL_TITLE": "Arguments",
    "OPTIONS_PANEL_TITLE": "Options",
    "COMMANDS_PANEL_TITLE": "Commands",
    "ERRORS_PANEL_TITLE": "Error",
    "DEFAULT_STRING": "[default: {}]",
    "REQUIRED_LONG_STRING": "[required]",
    "RICH_HELP": "Try [blue]'{command_path} {help_option}'[/] for help.",
}
"""Constants of `typer.rich_utils`, which has no other way to set them, with their English text."""


class Spoken:
    """A command or a group, before typer's class, with its help in `locale`."""

    locale: str

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option `--help`, with its own help."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.help = translate("Show this message and exit.", self.locale)
        return option

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """Write the usage line."""
        pieces = self.collect_usage_pieces(ctx)  # type: ignore[attr-defined]
        prefix = f"{translate('Usage:', self.locale)} "
        formatter.write_usage(ctx.command_path, " ".join(pieces), prefix=prefix)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page."""
        _set_up_panels(self.locale)
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the arguments, and translate usage errors in them."""
        with _spoken_errors(self.locale):
            return super().make_context(*args, **options)  # type: ignore[misc]

    def invoke(self, ctx: Any) -> Any:
        """Run the command, or the command of a group, and translate its usage errors."""
        with _spoken_errors(self.locale):
            return super().invoke(ctx)  # type: ignore[misc]


def _set_up_panels(locale: str) -> None:
    """Set the titles of typer's help pages and errors, for this process."""
    from typer import rich_utils  # imports rich's Markdown, which only help and errors need

    for name, english in _PANELS.items():
        setattr(rich_utils, name, translate(english, locale))


def set_up_wide_letters() -> None:
    """Let rich wrap texts with wide letters whole, for this process."""
    Text.rstrip_end = _rstrip_end  # type: ignore[assignment,method-assign]


def _rstrip_end(text: Text, size: int) -> None:
    """Remove white space beyond a width, as `Text.rstrip_end` of rich does.

    That counts characters and not cells, so that a space behind wide letters stays, and then the
    line is cut, with an ellipsis in place of its last letter.
    """
    excess = cell_len(text.plain) - size
    spaces = len(text.plain) - len(text.plain.rstrip())
    if excess > 0 and spaces:
        text.right_crop(min(spaces, excess))


@contextmanager
def _spoken_errors(locale: str) -> Iterator[None]:
    """Translate the message of a usage error that typer is going to print."""
    try:
        yield
    except Exception as error:
        format_message = getattr(error, "format_message", None)
        if format_message is not None:
            _set_up_panels(locale)
            # without arguments typer prints the help, which is translated already
            if type(error).__name__ != "NoArgsIsHelpError":
                text = translate(format_message(), locale)
                vars(error)["format_message"] = lambda: text
        raise
