"""One zoo: values that a model, a user's code or a gate may produce, for tests of every room."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st


class OddText(str):
    """An unhashable `str` subclass whose `__str__` raises."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment] # what is tested

    def __str__(self) -> str:
        raise RuntimeError


class OddMapping(Mapping[str, Any]):
    """A mapping of one entry that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise OSError(key)

    def __iter__(self) -> Any:
        raise OSError

    def __len__(self) -> int:
        return 1


class OddObject:
    """An object whose comparison and `repr` raise."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError


class OwnEndError(BaseException):
    """No `Exception`."""


ENDS = [GeneratorExit(), OwnEndError(), SystemExit(2), BaseExceptionGroup("all", [OwnEndError()])]


class AnswerGate:
    """A gate that returns any object as its answer."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def confirm(self, _request: Any) -> Any:
        return self._answer


def json_values(
    texts: st.SearchStrategy[str], keys: st.SearchStrategy[str] | None = None, max_leaves: int = 8
) -> st.SearchStrategy[Any]:
    """Return a strategy of JSON values without NaN, with these texts and keys (default: texts)."""
    scalars = st.none() | st.booleans() | st.integers() | texts
    return st.recursive(
        scalars | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(texts if keys is None else keys, inner, max_size=3)
        ),
        max_leaves=max_leaves,
    )


ANYTHING = (
    json_values(st.text(max_size=20))
    | st.floats()
    | st.binary()
    | st.sets(st.integers())
    | st.just(10**5000)
    | st.builds(OddObject)
    | st.builds(OddText, st.sampled_from(["look", "write", "x"]))
    | st.builds(OddMapping)
)
"""What a model or a handler may produce, JSON or not."""
