"""`check_rows`: every row is checked, and each that fails is named."""

import re
from pathlib import Path

import pytest

from tests.rows import check_rows, some_by_day

ROWS = [(1, 1), (1, 2), pytest.param(3, 4, id="three"), (5, 5)]
FAILING = "2 of 4 rows fail: row 2; row 3, three"


def notes(failed: "pytest.ExceptionInfo[BaseExceptionGroup]") -> list[str]:
    return [note for error in failed.value.exceptions for note in error.__notes__]


def test_check_rows_names_each_row_that_fails() -> None:
    @check_rows("number, expected", ROWS)
    def compare(number: int, expected: int) -> None:
        assert number == expected

    with pytest.raises(ExceptionGroup, match=re.escape(FAILING)) as failed:
        compare()
    assert notes(failed) == [
        "row 2: {'expected': 2, 'number': 1}",
        "row 3, three: {'expected': 4, 'number': 3}",
    ]


@pytest.mark.anyio
async def test_check_rows_awaits_coroutine_tests() -> None:
    @check_rows(("number", "expected"), ROWS)
    async def compare(number: int, expected: int) -> None:
        assert number == expected

    with pytest.raises(ExceptionGroup, match=re.escape(FAILING)):
        await compare()


def test_check_rows_reports_an_exception_that_was_not_raised() -> None:
    @check_rows("text", ["1", "x"], ids=["digit", "letter"])
    def refuse(text: str) -> None:
        with pytest.raises(ValueError, match="invalid"):
            int(text)

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows fail: row 1, digit"):
        refuse()


def test_check_rows_gives_each_row_a_folder(tmp_path: Path) -> None:
    folders: list[Path] = []

    @check_rows("name", ["a", "b"], ids=str.upper)
    def write(name: str, tmp_path: Path) -> None:
        assert [*tmp_path.iterdir()] == []
        (tmp_path / "file").write_text(name)
        folders.append(tmp_path)

    write(tmp_path=tmp_path)
    assert [(folder / "file").read_text() for folder in folders] == ["a", "b"]


def test_check_rows_needs_rows() -> None:
    with pytest.raises(AssertionError, match="has no rows"):

        @check_rows("name", [])
        def never(name: str) -> None:
            raise AssertionError(name)


def test_some_by_day_leaves_two_of_three_rows_for_the_night() -> None:
    rows = some_by_day([(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    assert [rows[0], rows[3]] == [(1, "a"), (4, "d")]
    assert [row.values for row in rows[1:3]] == [(2, "b"), (3, "c")]
    assert [[mark.name for mark in row.marks] for row in rows[1:3]] == [["nightly"], ["nightly"]]
    assert [row.values for row in some_by_day("ab")[1:]] == [("b",)]
