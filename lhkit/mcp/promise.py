"""What a server promises of the results of a tool (`outputSchema`), and results that break it.

A stranger's schema is as hostile as may be: no regular expression of it is run, nothing is fetched,
and a check ends after so many steps. What cannot be checked counts as kept.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, Any

from lhkit.json_values import shown
from lhkit.tools.describe import expected_by
from lhkit.tools.drafts import upgraded
from lhkit.tools.json_schema import (
    EMPTY_REGISTRY,
    Draft202012Validator,
    SchemaValidator,
    best_match,
    extend,
)
from lhkit.tools.schema import with_subschemas

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

_log = getLogger(__name__)

BAD_RESULT = "bad_result"
"""The code of a result that is not what its server promised."""

MOST_STEPS = 20_000
"""So many keywords are looked at in a result: a second of work at most."""

_SHOWN_CHARS = 60


class ResultPromise:
    """What a tool of a server says that its results are.

    Args:
        tool: as the server tells it.
    """

    def __init__(self, tool: "Tool") -> None:
        self._name = tool.name
        self._schema = tool.output_schema
        self._left = _Left()

    def broken_by(self, answer: "CallToolResult") -> str:
        """Return how a result breaks the promise, in words; empty if it keeps it. Never raises."""
        if self._schema is None or answer.is_error:
            return ""
        self._left.steps = MOST_STEPS
        try:
            validator = self._validator
            if answer.structured_content is None:
                return self._told("it has no structured content")
            fault = best_match(validator.iter_errors(answer.structured_content))
            return "" if fault is None else self._told(self._explained(fault))
        except Exception as error:  # noqa: BLE001 - boundary: a stranger's schema may be anything
            _log.warning("%s: its result cannot be checked: %s", self._name, type(error).__name__)
            return ""

    def _explained(self, fault: Any) -> str:
        where = ".".join(str(part) for part in fault.absolute_path) or "the whole"
        if fault.validator == "required":
            missing = [name for name in fault.validator_value if name not in fault.instance]
            return f"{where} lacks {', '.join(map(repr, missing))[:_SHOWN_CHARS]}"
        wanted = expected_by(fault, self._schema)[: 2 * _SHOWN_CHARS]
        return f"{where} is {shown(fault.instance, _SHOWN_CHARS)} and should be {wanted}"

    def _told(self, why: str) -> str:
        return (
            f"{self._name} ran, but its answer is not what its server promises (outputSchema): "
            f"{why}. Whatever it did is done: look before you call it again."
        )

    @cached_property
    def _validator(self) -> Any:
        """Checks results.

        Raises:
            SchemaError: the schema is none.
        """
        schema = upgraded(without_patterns(self._schema))
        Draft202012Validator.check_schema(schema)
        counted = {name: self._counted(check) for name, check in SchemaValidator.VALIDATORS.items()}
        counted["enum"] = self._counted_enum
        counted["uniqueItems"] = _nothing
        kind: Any = extend(SchemaValidator, validators=counted)  # type: ignore[no-untyped-call]
        return kind(schema, registry=EMPTY_REGISTRY)

    def _counted_enum(
        self, validator: Any, choices: list[Any], value: Any, schema: Any
    ) -> Iterator[Any]:
        self._left.steps -= len(choices)  # each is compared with the value
        yield from self._counted(SchemaValidator.VALIDATORS["enum"])(
            validator, choices, value, schema
        )

    def _counted(self, check: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any) -> Iterator[Any]:
            self._left.steps -= 1
            if self._left.steps < 0:
                raise _TooLongError
            yield from check(*args) or ()

        return counting


class _Left(threading.local):
    """How many steps a check may still take."""

    steps = MOST_STEPS


class _TooLongError(Exception):
    """A check has taken as many steps as it may."""


def _nothing(*_args: Any) -> tuple[()]:
    """Check nothing: this one takes the square of what it is given."""
    return ()


def without_patterns(schema: Any) -> Any:
    """Return a schema without regular expressions: a stranger's may take for ever on a text.

    The server itself still refuses what does not fit them.
    """
    if not isinstance(schema, Mapping):
        return schema
    inner = with_subschemas(schema, without_patterns)
    gone = {"pattern", "patternProperties"}
    if "patternProperties" in inner:
        gone |= {"additionalProperties"}  # without the other it would refuse what is allowed
    return {key: value for key, value in inner.items() if key not in gone}
