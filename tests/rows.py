"""Tables of rows that are so cheap that one test checks all of them."""

import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., Any]
Ids = Iterable[str | None] | Callable[[Any], Any] | None


def check_rows(
    names: str | Sequence[str], rows: Iterable[Any], ids: Ids = None
) -> Callable[[Test], Test]:
    """Check all rows in one test: `pytest.mark.parametrize` for rows that cost less than a test.

    A row that fails does not end the test: the failure shows the name and the traceback of each
    such row. The rows share the fixtures of the test, but each has a `tmp_path` of its own.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else names

    def decorate(test: Test) -> Test:
        table = [*_table(arguments, [*rows], ids)]
        assert table, f"{test.__name__} has no rows"
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def check(**fixtures: Any) -> None:
                failures = _Failures(len(table))
                for name, values in table:
                    with failures.of(name, values):
                        await test(**values, **_of_row(fixtures, name))
                failures.show()

        else:

            @wraps(test)
            def check(**fixtures: Any) -> None:
                failures = _Failures(len(table))
                for name, values in table:
                    with failures.of(name, values):
                        test(**values, **_of_row(fixtures, name))
                failures.show()

        signature = inspect.signature(test)
        fixtures = [value for name, value in signature.parameters.items() if name not in arguments]
        check.__signature__ = signature.replace(parameters=fixtures)
        return check

    return decorate


def some_by_day(rows: Iterable[Any]) -> list[Any]:
    """Return the rows for `pytest.mark.parametrize`, the first of each three by day.

    The others run at night. For rows that vary a promise, each of which costs as much as a test.
    """
    return [row if number % 3 == 0 else _at_night(row) for number, row in enumerate(rows)]


def _at_night(row: Any) -> Any:
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, marks=pytest.mark.nightly)


def _of_row(fixtures: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the fixtures of a test with a folder of the row in place of `tmp_path`."""
    if "tmp_path" not in fixtures:
        return fixtures
    folder: Path = fixtures["tmp_path"] / name.partition(",")[0].replace(" ", "")
    folder.mkdir()
    return {**fixtures, "tmp_path": folder}


Row = tuple[str, Mapping[str, Any]]


def _table(arguments: Sequence[str], rows: Sequence[Any], ids: Ids) -> Iterator[Row]:
    """Yield the name of each row and its arguments."""
    given = None if ids is None or callable(ids) else [*ids]
    for number, row in enumerate(rows, 1):
        name, values = None, (row,) if len(arguments) == 1 else row
        if isinstance(row, type(pytest.param())):
            assert not row.marks, f"row {number}: a row has no marks of its own"
            name, values = row.id, row.values
        if name is None and given is not None:
            name = given[number - 1]
        if name is None and callable(ids):
            name = "-".join(str(ids(value)) for value in values)
        yield (
            f"row {number}" + (f", {name}" if name else ""),
            dict(zip(arguments, values, strict=True)),
        )


class _Failures:
    """The rows of a table that failed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._errors: dict[str, BaseException] = {}

    @contextmanager
    def of(self, name: str, values: Mapping[str, Any]) -> Iterator[None]:
        """Note the failure of a row, and go on."""
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - `show` raises it
            error.add_note(f"{name}: {_shown(values)}")
            self._errors[name] = error

    def show(self) -> None:
        """Raise all failures at once."""
        if self._errors:
            message = f"{len(self._errors)} of {self._count} rows fail: {'; '.join(self._errors)}"
            raise BaseExceptionGroup(message, [*self._errors.values()])


def _shown(values: Mapping[str, Any]) -> str:
    """Return the values of a row, shortened; some on purpose have no `repr`."""
    try:
        return reprlib.repr(values)
    except Exception:  # noqa: BLE001 - see above
        return "?"
