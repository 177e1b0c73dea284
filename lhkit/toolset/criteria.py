"""The acceptance criteria that a toolset names: their texts, and that of a scenario from a chat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lhkit.base.errors import UsageError
from lhkit.base.json_values import shown
from lhkit.base.locales import available_locales
from lhkit.toolset.base import Toolset, name_of
from lhkit.toolset.sessions import user_code

Criteria: TypeAlias = Mapping[str, Mapping[str, str]]
"""The texts of acceptance criteria, by criterion and language."""

WrittenAnswer: TypeAlias = Literal["accept", "reject", "absent"] | Mapping[str, Any]
"""Answer of the user to a confirmation, as in a scenario file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """A call of a chat that a scenario made from it expects.

    Attributes:
        tool: the name of the tool.
        args: the arguments as the model wrote them.
        result: ok, cancelled or an error code.
        answer: of the user to the confirmation; None if the tool changes nothing.
    """

    tool: str
    args: Any
    result: str
    answer: WrittenAnswer | None


def criteria_of(toolset: Toolset) -> Criteria:
    """Return the texts of a toolset's acceptance criteria; none if it has no `criteria`.

    Raises:
        UsageError: `criteria` fails, or does not map criteria to a text or to texts by language.
    """
    what = f"criteria of {name_of(toolset)}"
    with user_code(what):
        given = getattr(toolset, "criteria", None)
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise _invalid_criteria(what, given)
        criteria = dict(given)
    return {name: _texts(name, value, what) for name, value in criteria.items()}


def _texts(name: Any, value: Any, what: str) -> Mapping[str, str]:
    """Return the texts of a criterion by language; a single text is that of every language."""
    texts = value if isinstance(value, Mapping) else dict.fromkeys(available_locales(), value)
    if not all(isinstance(part, str) and part.strip() for part in (name, *texts, *texts.values())):
        raise _invalid_criteria(what, {name: value})
    return {locale: " ".join(text.split()) for locale, text in texts.items()}


def _invalid_criteria(what: str, value: Any) -> UsageError:
    return UsageError(
        f"{what} is invalid: {shown(value)}. Map each criterion to a text, or to texts by "
        'language: {"AC-1": {"en": "find", "ko": "찾기"}}.'
    )


def criterion_of(toolset: Toolset, calls: Sequence[ChatCall]) -> str | None:
    """Return the criterion of a scenario made from a chat; None if the toolset names none.

    Args:
        toolset: the toolset, which may have a method `criterion`.
        calls: the expected calls of all turns.

    Raises:
        UsageError: `criterion()` fails, or returns something else than a text or None.
    """
    what = f"criterion() of {name_of(toolset)}"
    with user_code(what):
        criterion = getattr(toolset, "criterion", None)
        name = None if criterion is None else criterion(tuple(calls))
    if name is None or (isinstance(name, str) and name.strip()):
        return name
    raise UsageError(f"{what} is invalid: it returned {shown(name)}. Return a criterion, or None.")
