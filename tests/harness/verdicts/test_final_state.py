"""The state at the end: listed rows are there, and nothing else has changed."""

from typing import Any

import pytest

from lhkit.harness.verdicts.final_state import check_state

A = {"id": "a", "n": 1}
B = {"id": "b", "n": 2}
B9 = {"id": "b", "n": 9}


@pytest.mark.parametrize(
    ("final", "before", "after", "missing", "unlisted"),
    [
        ({}, {"t": (A,)}, {"t": (A,)}, 0, 0),
        ({}, {"t": (A,)}, {"t": (A, B)}, 0, 1),
        ({}, {"t": (A,)}, {"t": ()}, 0, 1),
        ({}, {}, {"u": (A,)}, 0, 1),
        ({"t": [{"id": "b"}]}, {"t": (A,)}, {"t": (A, B)}, 0, 0),
        ({"t": [{"id": "a"}, {"id": "b"}]}, {"t": (A,)}, {"t": (A, B)}, 0, 0),
        ({"t": [{"id": "b", "n": 3}]}, {"t": (A,)}, {"t": (A, B)}, 1, 1),
        ({"t": [{"id": "b"}, {"id": "b"}]}, {"t": (A,)}, {"t": (A, B)}, 1, 0),
        ({"t": [{"n": {"any": True}}]}, {"t": (A,)}, {"t": (A, B)}, 0, 0),
        ({"t": [{"id": "b", "n": 9}]}, {"t": (A, B)}, {"t": (A, B9)}, 0, 0),
        ({"t": [{"id": "b", "n": 9}]}, {"t": (A, B)}, {"t": (B9,)}, 0, 1),
        ({"t": [{"id": "b"}]}, {"t": (B,)}, {"t": ()}, 1, 1),
        ({"t": [{"id": "b"}]}, {}, {"t": (B,), "u": (A,)}, 0, 1),
        ({"t": [{"id": "b"}]}, {"t": (A,)}, {"t": (B,)}, 0, 1),  # one written, another deleted
        ({"t": [{"id": "a"}]}, {"t": (A,)}, {"t": (A, A)}, 0, 0),
        ({"t": [{"id": "a"}]}, {"t": (A,)}, {"t": (A, A, A)}, 0, 1),
        ({"t": []}, {"t": (A,)}, {"t": ({"id": "a", "n": True},)}, 0, 2),
        ({"t": []}, {"t": (A,)}, {"t": (A,)}, 0, 0),
        ({"t": [{"missing": 1}]}, {}, {"t": (A,)}, 1, 1),
        ({"t": [{"n": True}]}, {}, {"t": (A,)}, 1, 1),
    ],
)
def test_rows_are_listed_unchanged_or_wrong(
    final: Any, before: Any, after: Any, missing: int, unlisted: int
) -> None:
    verdict = check_state(final, before=before, after=after)
    assert (len(verdict.missing), len(verdict.unlisted)) == (missing, unlisted)


@pytest.mark.parametrize(
    ("gone", "before", "after", "missing", "unlisted"),
    [
        ([{"id": "a"}], (A, B), (B,), 0, 0),
        ([{"id": {"matches": "^a"}}], (A, B), (B,), 0, 0),
        ([{"id": "a"}], (A, B), (A, B), 1, 0),  # not deleted
        ([{"id": "c"}], (A, B), (B,), 1, 1),  # another one was
        ([{"id": "a"}], (A, B), (), 0, 1),  # and one more
        ([{"id": "a"}, {"id": "a"}], (A, B), (B,), 1, 0),
        ([{"id": "b"}], (A, B), (A, B9), 0, 1),  # changed, which nobody expected
        ([{}], (A, B), (B,), 0, 0),
    ],
)
def test_what_is_to_be_deleted_is_gone_and_nothing_else(
    gone: Any, before: Any, after: Any, missing: int, unlisted: int
) -> None:
    verdict = check_state({}, gone={"t": gone}, before={"t": before}, after={"t": after})
    assert (len(verdict.missing), len(verdict.unlisted)) == (missing, unlisted)


def test_an_update_is_no_deletion() -> None:
    verdict = check_state(
        {"t": [{"id": "b", "n": 9}]},
        gone={"t": [{"id": "b"}]},
        before={"t": (B,)},
        after={"t": (B9,)},
    )
    assert verdict.missing == ('gone.t[0]: no row like {"id":"b"} was deleted',)
    assert verdict.unlisted == ()
