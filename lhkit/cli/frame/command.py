"""Turn an async function and its `Options` into a typer command."""

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from copy import copy
from inspect import Parameter, Signature, cleandoc
from itertools import pairwise
from pathlib import Path
from types import GenericAlias, ModuleType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from pydantic import BaseModel, ConfigDict
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from lhkit.base.locales import available_locales
from lhkit.base.locales.messages import translate
from lhkit.base.options import validate_options
from lhkit.base.text import printable
from lhkit.cli.frame.finish import Runner, finish
from lhkit.cli.frame.spoken import Spoken

if TYPE_CHECKING:
    from lhkit.settings import Settings

STDOUT = Path("-")
"""The file name that stands for standard output."""

_Function = TypeVar("_Function", bound=Callable[..., Coroutine[Any, Any, int]])

_MAY_BE_EMPTY = "--stress"  # the only option with a meaningful empty value: no stress

_ONE_ADDRESS = (
    "--base-url is given {count} times: give one address. For several servers start vLLM with "
    "--data-parallel-size, or let Ray start them: lhkit eval --ray local --replicas N"
)


class Options(BaseModel):
    """Options of a command: each field annotated with a typer option or argument.

    A class that inherits fields from a model which knows no command line, such as `RunOptions`,
    gives their options by name in `shown`; types, limits and defaults are those of the fields.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    shown: ClassVar[Mapping[str, Any]] = {}
    project_keys: ClassVar[Collection[str] | None] = None
    """The keys that the command takes from `lhkit.toml`; None for those that are its options."""
    prints_data: ClassVar[bool] = False
    """Standard output is for programs, so what was taken is said on standard error."""


def command(*examples: str, name: str = "") -> Callable[[_Function], _Function]:
    """Mark an async function `(options, settings) -> exit code` as a command of its module.

    Args:
        examples: command lines shown under the help.
        name: the subcommand, such as `list` of `lhkit chats list`; its help is the first paragraph
            of the function's docstring.
    """

    def mark(function: _Function) -> _Function:
        function.__dict__.update(examples=examples, subcommand=name)
        return function

    return mark


def build_command(
    module: ModuleType, name: str, summary: str, run: Runner, locale: str
) -> typer.Typer:
    """Return the command, or the group of subcommands, that a module defines.

    Args:
        module: a module with functions marked by `command`, or a `find_commands()` that yields
            them.
        name: the name of the command.
        summary: the help of the command or the group.
        run: runs a coroutine to its end.
        locale: language of the help and of errors.
    """
    found = module.find_commands() if hasattr(module, "find_commands") else vars(module).values()
    functions = [value for value in found if hasattr(value, "subcommand")]
    words = {"locale": locale}
    group, single = type("_Group", (_Group,), words), type("_Command", (_Command,), words)
    app = typer.Typer(cls=group, add_completion=False, no_args_is_help=True)
    for function in functions:
        subcommand = function.subcommand
        app.command(
            subcommand or name,
            cls=single,
            help=translate(_help(function) if subcommand else summary, locale),
            epilog=format_examples(function.examples),
        )(_typer_callback(function, run, locale))
    if functions[0].subcommand:
        examples = (function.examples[0] for function in functions)
        app.callback(help=translate(summary, locale), epilog=format_examples(examples))(
            lambda: None
        )
    return app


def format_examples(lines: Iterable[str]) -> str:
    """Return example command lines as text for the end of a help page."""
    return "\n".join(f"$ {line}" for line in lines)


class _Group(Spoken, TyperGroup):
    pass


class _Command(Spoken, TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse empty values, such as an unset variable of a script, and several addresses."""
        for before, word in pairwise(("", *args)):
            is_joined = word.startswith("--") and word.endswith("=")  # --option=
            option = word[:-1] if is_joined else before if before.startswith("-") else "an argument"
            if (is_joined or not word) and option != _MAY_BE_EMPTY:
                reason = f"{option} is empty: give it a value or leave it out"
                raise typer.BadParameter(reason, ctx=ctx)
        *_, given = self.make_parser(ctx).parse_args([*args])
        count = sum("--base-url" in parameter.opts for parameter in given)
        if count > 1:  # other options: the last one counts, so that a script's can be overridden
            raise typer.BadParameter(_ONE_ADDRESS.format(count=count), ctx=ctx)
        return super().parse_args(ctx, args)


def _help(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring."""
    return cleandoc(function.__doc__ or "").partition("\n\n")[0]


def _typer_callback(function: Callable[..., Any], run: Runner, locale: str) -> Callable[..., None]:
    """Return a function with one parameter an option, which runs the command."""
    options_type: type[Options] = get_type_hints(function)["options"]

    def callback(context: typer.Context, **values: Any) -> None:
        given = {name: value for name, value in values.items() if _is_given(context, name)}
        # a command's own --locale is also that of its errors; the scenarios' is a list of them
        own = [name for name in (given.get("locale"),) if name in available_locales()]

        def start(settings: "Settings") -> tuple["Settings", Coroutine[Any, Any, int]]:
            from lhkit.cli.frame.project import with_project  # slow, and not needed for help

            completed, settings, line = with_project(options_type, given, settings)
            options = validate_options(options_type, **completed)
            if line:
                typer.echo(printable(line), err=_prints_data(options))
            settings = settings.model_copy(update={"locale": own[0]} if own else {})
            return settings, function(options, settings)

        finish(run, start, own[0] if own else locale)

    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    signature = Signature([context, *_parameters(options_type, locale)])
    callback.__signature__ = signature  # type: ignore[attr-defined]
    return callback


def _is_given(context: typer.Context, name: str) -> bool:
    """Return whether the user typed an option or argument."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _prints_data(options: Options) -> bool:
    """Return whether standard output is for programs."""
    is_json = getattr(options, "as_json", False)
    return options.prints_data or is_json or getattr(options, "markdown", None) == STDOUT


def _parameters(options_type: type[Options], locale: str) -> Iterator[Parameter]:
    for name, field in options_type.model_fields.items():
        given = [each for each in field.metadata if isinstance(each, OptionInfo | ArgumentInfo)]
        option = given[0] if given else _inherited_option(options_type, name)
        if option is not None:
            option = copy(option)
            option.help = translate(option.help or "", locale) or None
            yield Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.is_required() else field.get_default() or None,
                annotation=Annotated[_plain_type(field.annotation), option],
            )


def _inherited_option(options_type: type[Options], name: str) -> OptionInfo | None:
    """Return the option of a field that `shown` describes, with the field's lower limit."""
    shown = [base.__dict__["shown"] for base in options_type.__mro__ if "shown" in base.__dict__]
    option = next((options[name] for options in shown if name in options), None)
    if option is None:
        return None
    option = copy(option)
    field = options_type.model_fields[name]
    # above the upper limit, the model's own message is clearer than typer's
    option.min = next((each.ge for each in field.metadata if hasattr(each, "ge")), None)
    if field.annotation is bool and not option.param_decls:  # without a --no-NAME
        option.param_decls = (f"--{name.replace('_', '-')}",)
    return cast(OptionInfo, option)


def _plain_type(kind: Any) -> Any:
    """Return a type as typer reads it: without validators, and a list for a tuple."""
    if get_origin(kind) is Annotated:
        return _plain_type(get_args(kind)[0])
    if get_origin(kind) is tuple:  # typer knows lists of any length, but no such tuples
        return GenericAlias(list, get_args(kind)[:1])
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return Union[tuple(_plain_type(each) for each in get_args(kind))]  # noqa: UP007 - of a tuple
    return kind
