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
