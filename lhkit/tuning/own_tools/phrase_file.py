"""A phrase file: what people say to a toolset and what is answered, as its owner wrote it.

Every fault is told by file, line and field. Whether the phrases fit a toolset is asked in `checks`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from lhkit.errors import ScenarioError, TuningError
from lhkit.harness.expectations.matchers import Fault, shown_path
from lhkit.harness.expectations.matchers import Path as DataPath
from lhkit.harness.scenarios.scenario import SourceFault, read_document, shape_faults
from lhkit.harness.scenarios.yaml_source import Document
from lhkit.locales import available_locales
from lhkit.vocab.json_values import compact

TODO = "TODO"
"""A text that begins with this is still to be written."""

HOW = "`lhkit tune init` writes a file to fill in"

_Words: TypeAlias = Annotated[str, Field(pattern=r"\S")]
_Values: TypeAlias = Mapping[str, tuple[Any, ...]]


class _Strict:
    """Tells pydantic to refuse unknown fields; a plain base so that values stay dataclasses."""

    __slots__ = ()
    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - pydantic's name and type


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence(_Strict):
    """What a user says, with slots for arguments. `args` are arguments it means without a slot."""

    text: _Words
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPhrases(_Strict):
    """What is said of one tool.

    `values` are what its arguments may be; `failing` are values that the tool refuses or does not
    find. `replies` are keyed by what a call came to: `ok`, `not_found`, `refused`, `cancelled`, or
    an error code of the tool.
    """

    say: tuple[_Words | Sentence, ...] = ()
    values: _Values = field(default_factory=dict)
    failing: _Values = field(default_factory=dict)
    replies: Mapping[str, tuple[_Words, ...]] = field(default_factory=dict)

    def sentences(self) -> tuple[Sentence, ...]:
        """Return what users say, each with its fixed arguments."""
        return tuple(
            each if isinstance(each, Sentence) else Sentence(text=each) for each in self.say
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk(_Strict):
    """What needs no tool: what users say and what fits as an answer to all of it."""

    say: Annotated[tuple[_Words, ...], Field(min_length=1)]
    answer: Annotated[tuple[_Words, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalePhrases(_Strict):
    """Everything in one language.

    `two_wishes` joins `{first}` and `{second}` in one message. `before` and `after` are words that
    people put around a wish.
    """

    tools: Mapping[str, ToolPhrases] = field(default_factory=dict)
    small_talk: tuple[Talk, ...] = ()
    out_of_scope: tuple[Talk, ...] = ()
    two_wishes: tuple[_Words, ...] = ()
    before: tuple[_Words, ...] = ()
    after: tuple[_Words, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases(_Strict):
    """A whole file.

    `worlds` are states that conversations begin in, as in a scenario. With `typos`, some sentences
    are typed carelessly; the words in their slots never are.
    """

    locales: Annotated[Mapping[str, LocalePhrases], Field(min_length=1)]
    worlds: Annotated[tuple[Mapping[str, Any], ...], Field(min_length=1)] = ({},)
    typos: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PhraseFile:
    """Phrases and where each of them stands."""

    file: Path
    document: Document
    phrases: Phrases

    def place(self, path: DataPath) -> str:
        """Return `file:line: field`, for a sentence about a fault."""
        return f"{self.file}:{self.document.line(path)}: {shown_path(path)}"


_ADAPTER = TypeAdapter(Phrases)


def read_phrases(file: Path) -> PhraseFile:
    """Return the phrases of a file.

    Raises:
        TuningError: the file cannot be read, is empty, is no YAML, has a TODO left, or a field of
            it is wrong; one line for each fault: `file:line: field: what is wrong`.
    """
    try:
        document = read_document(file)
    except ScenarioError as error:
        raise TuningError(f"{error}: {HOW}") from error
    refuse_faults(file, document, tuple(map(_with_hint, document.faults)))
    if document.value is None:
        raise TuningError(f"{file} is empty: {HOW}")
    if not isinstance(document.value, dict):
        raise TuningError(f"{file}:1: must be a mapping with `locales:`: {HOW}")
    _refuse_todos(file, document)
    return PhraseFile(file=file, document=document, phrases=_parsed(file, document))


def _with_hint(fault: Fault) -> Fault:
    """Tell of what most often makes a sentence with slots no YAML."""
    if not fault.message.startswith("not YAML"):
        return fault
    hint = "(a text that begins with { or holds ': ' needs quotes)"
    return replace(fault, message=f"{fault.message} {hint}")


def refuse_faults(file: Path, document: Document, faults: tuple[Fault, ...]) -> None:
    """Do nothing if there are no faults.

    Raises:
        TuningError: there are some; a line for each, in order of appearance.
    """
    found = sorted(faults, key=lambda each: document.line(each.path))
    if found:
        told = (
            SourceFault(
                file=file,
                line=document.line(each.path),
                place=shown_path(each.path),
                message=each.message,
            )
            for each in found
        )
        raise TuningError("\n".join(map(str, told)))


def _refuse_todos(file: Path, document: Document) -> None:
    todos = sorted(_todos(document.value, ()), key=document.line)
    if todos:
        path, others = todos[0], len(todos) - 1
        more = f" ({others} more after it)" if others else ""
        raise TuningError(
            f"{file}:{document.line(path)}: {shown_path(path)}: a TODO is left{more}: "
            "write your own words there, or delete the line"
        )


def _todos(value: Any, path: DataPath) -> Iterator[DataPath]:
    if isinstance(value, str) and value.lstrip().startswith(TODO):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            if str(key).startswith(TODO):
                yield (*path, key)
            yield from _todos(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _todos(item, (*path, number))


def _parsed(file: Path, document: Document) -> Phrases:
    try:
        phrases = _ADAPTER.validate_json(compact(document.value), strict=True)
    except ValidationError as error:
        refuse_faults(file, document, shape_faults(error, _ADAPTER, document))
        raise AssertionError("pydantic refused without a reason") from error
    known = available_locales()
    unknown = (
        Fault(("locales", locale), f"must be one of {', '.join(known)}")
        for locale in phrases.locales
        if locale not in known
    )
    refuse_faults(file, document, tuple(unknown))
    return phrases
