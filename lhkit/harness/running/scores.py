"""Scores of one's own: functions from a `Sample` to a value, and where they come from.

    @score
    def writes(sample: Sample) -> int:
        return sum(call.writes and call.run is not None for call in sample.calls)

`score_run` computes them, `records.score_record` stores their results.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial, update_wrapper
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias, overload, runtime_checkable

from lhkit.base.errors import UsageError
from lhkit.harness.records.manifest import ScoreSource
from lhkit.harness.records.score_record import JudgeAnswer, ScoreRecord
from lhkit.harness.running.score_source import function_sha256
from lhkit.harness.views.sample import Sample
from lhkit.toolset import Toolset, load_named
from lhkit.toolset.sessions import WrappedToolset
from lhkit.toolset.source import module_of

GROUP = "lhkit.scores"
"""The entry points of installed packages; their names can be given as references."""

RESERVED = "lhkit"
MAX_NAME_CHARS = 60
LIMIT_S = 60.0
CONCURRENCY = 8


class ScoreFailure(Exception):  # noqa: N818 - a failure of the score, which is a result
    """A score has no value for a sample; the message is why.

    Attributes:
        answer: what a judge answered, if it did.
    """

    answer: JudgeAnswer | None = None


@runtime_checkable
class JudgeFunction(Protocol):
    """The function of a judge, which this module does not import: it reaches model clients."""

    @property
    def source_sha256(self) -> str:
        """The hash of the question and the model."""

    @property
    def is_callers(self) -> bool:
        """Whether it must be called in the event loop of the caller, where its model was made."""

    def __call__(self, sample: Sample) -> Any:
        """Ask the question about a sample."""

    def remember(self, results: Iterable[ScoreRecord]) -> None:
        """Use the answers in stored results for the same questions."""

    def value(self, answer: JudgeAnswer) -> bool | None:
        """Return what an answer means.

        Raises:
            ScoreFailure: it is none of the choices.
        """

    async def aclose(self) -> None:
        """Close the model, unless it was given."""


ScoreFunction: TypeAlias = Callable[[Sample], Any]
"""Returns a bool, a number, a text (the reason of a False), None (does not apply), a mapping of
names to these, or an awaitable of one."""


class Score:
    """A function that scores a finished sample. Create it with `score`.

    Calling it calls the function, so that a test can do that.

    Attributes:
        function: the function.
        name: its name in tables, files and options.
        fails: whether it is a check: a False or a text fails the sample.
        limit_s: seconds for one sample; then the score has failed for it.
        concurrency: samples at a time.
    """

    def __init__(
        self,
        function: ScoreFunction,
        *,
        name: str,
        fails: bool = False,
        limit_s: float = LIMIT_S,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.function = function
        self.name = name
        self.fails = fails
        self.limit_s = limit_s
        self.concurrency = concurrency
        update_wrapper(self, function, updated=())

    def __call__(self, sample: Sample) -> Any:
        """Return what the function returns."""
        return self.function(sample)

    def __repr__(self) -> str:
        return f"<Score {self.name}{', a check' if self.fails else ''}>"

    @cached_property
    def source(self) -> ScoreSource:
        """The hash of its source, and whether it is a check."""
        function = self.function
        sha256 = (
            function.source_sha256
            if isinstance(function, JudgeFunction)
            else function_sha256(function)
        )
        return ScoreSource(source_sha256=sha256, fails=self.fails)


@overload
def score(function: ScoreFunction | Score, /) -> Score: ...
@overload
def score(
    function: ScoreFunction | Score,
    /,
    *,
    fails: bool | None = None,
    name: str | None = None,
    limit_s: float | None = None,
    concurrency: int | None = None,
) -> Score: ...
@overload
def score(
    function: None = None,
    /,
    *,
    fails: bool | None = None,
    name: str | None = None,
    limit_s: float | None = None,
    concurrency: int | None = None,
) -> Callable[[ScoreFunction | Score], Score]: ...
def score(
    function: ScoreFunction | Score | None = None,
    /,
    *,
    fails: bool | None = None,
    name: str | None = None,
    limit_s: float | None = None,
    concurrency: int | None = None,
) -> Score | Callable[[ScoreFunction | Score], Score]:
    """Make a score of a function of a finished sample.

        @score
        def writes(sample: Sample) -> int:
            return sum(call.writes and call.run is not None for call in sample.calls)

        @score(fails=True)
        def short(sample: Sample) -> bool | str:
            return len(sample.reply) < 200 or "the reply is long"

    The function may be async. It returns a bool, a number, a text (a False with this reason), None
    (does not apply), or a mapping of names to these. Anything else, an exception, NaN, a text of
    more than 2,000 characters or exceeding the limit is the score's own failure: it is counted and
    shown, and is no result of the sample.

    Args:
        function: the function, or a score to derive another from.
        fails: make it a check: a False or a text fails the sample. A check returns no numbers.
        name: its name; by default that of the function.
        limit_s: seconds for one sample, by default 60. A function that is not async runs in a
            thread of its own, which is left behind then. Async ones share an event loop in a
            thread; one that is blocked is left behind, too.
        concurrency: samples at a time, by default 8.

    Raises:
        UsageError: the function or an option is invalid.
    """
    options = {"fails": fails, "name": name, "limit_s": limit_s, "concurrency": concurrency}
    given = {key: value for key, value in options.items() if value is not None}
    if function is None:
        return partial(_new_score, given=given)
    return _new_score(function, given=given)


def _new_score(function: ScoreFunction | Score, *, given: dict[str, Any]) -> Score:
    values: dict[str, Any] = {}
    if isinstance(function, Score):
        other = function
        values = {
            "name": other.name,
            "fails": other.fails,
            "limit_s": other.limit_s,
            "concurrency": other.concurrency,
        }
        function = other.function
    values = {"name": _name_of(function), **values, **given}
    if issue := _function_issue(function) or _value_issue(values):
        raise UsageError(f"The score {values['name'] or function!r} is invalid: {issue}")
    return Score(function, **values)


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    return name if isinstance(name, str) else ""


def _function_issue(function: Any) -> str:
    """Return why a function cannot score a sample; empty if it can."""
    if inspect.isclass(function):
        return "it is a class. Give a function, or an object with __call__(sample)"
    if not callable(function):
        return f"it is {type(function).__name__}, not a function of a sample"
    called = _called(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        return "it is a generator. Return one value, or a mapping of names to values"
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        return f"it does not take one argument, the sample ({error})"
    except ValueError:  # a builtin without a signature
        pass
    return ""


def _called(function: Any) -> Any:
    """Return the function that runs: of a partial, of an object with `__call__`."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def is_async(function: Any) -> bool:
    """Return whether calling a function only creates a coroutine."""
    return inspect.iscoroutinefunction(_called(function))


def _value_issue(values: dict[str, Any]) -> str:
    """Return which option of a score is invalid; empty if none is."""
    if issue := name_issue(values["name"]):
        return f"{issue}. Give a name= such as 'polite'"
    limit_s, concurrency = values.get("limit_s", LIMIT_S), values.get("concurrency", CONCURRENCY)
    if not isinstance(limit_s, int | float) or not 0 < limit_s <= 86_400:
        return f"limit_s is {limit_s!r}. Give seconds above 0, at most a day"
    if not isinstance(concurrency, int) or not 1 <= concurrency <= 1_000:
        return f"concurrency is {concurrency!r}. Give a number from 1 to 1,000"
    return ""


def name_issue(name: Any) -> str:
    """Return why a text cannot name a score or one of its values; empty if it can."""
    if not isinstance(name, str) or not name.replace("-", "_").isidentifier():
        return f"{name!r} is not a valid name: use letters, digits, '_' and '-'"
    if name == RESERVED:
        return f"the name {RESERVED!r} is that of the verdict in exports"
    if len(name) > MAX_NAME_CHARS:
        return f"its name has {len(name)} characters, more than {MAX_NAME_CHARS}"
    return ""


ScoreLike: TypeAlias = Score | str
"""A score, or its reference: `FILE.py:NAME`, `package.module:NAME`, or the name of an entry point
of the group `lhkit.scores`."""


def load_scores(
    given: Iterable[ScoreLike] = (), toolset: Toolset | None = None
) -> tuple[Score, ...]:
    """Return the scores of a toolset and those that are given, each once.

    Those of a toolset are in its attribute `scores`, else in the variable `scores` of its module.

    Raises:
        UsageError: a reference or a score is invalid, or two scores have the same name.
    """
    scores: dict[str, Score] = {}
    for each in [*_toolset_scores(toolset), *(one for like in given for one in _load(like))]:
        other = scores.setdefault(each.name, each)
        if other.source != each.source:
            raise UsageError(
                f'Two scores have the name {each.name!r}. Give one of them another: score(name="…")'
            )
    return tuple(scores.values())


def _toolset_scores(toolset: Toolset | None) -> Iterator[Score]:
    if toolset is None:
        return
    inner: Any = toolset
    while isinstance(inner, WrappedToolset):
        inner = inner.inner
    scores = getattr(inner, "scores", None)
    if scores is None:
        scores = getattr(module_of(inner), "scores", None)
    if scores is not None:
        yield from _scores_of(scores, "scores of the toolset")


def _load(like: ScoreLike) -> Sequence[Score]:
    if not isinstance(like, str):
        return _scores_of(like, "scores")
    points = entry_points(group=GROUP, name=like) if ":" not in like else ()
    reference = next((point.value for point in points), like)
    if ":" not in reference:
        known = ", ".join(sorted(point.name for point in entry_points(group=GROUP)))
        raise UsageError(
            f"There is no score {like!r}: write FILE.py:NAME, package.module:NAME, or a name that "
            f"an installed package declares as an entry point of {GROUP} ({known or 'none here'})"
        )
    return _scores_of(load_named("score", reference), f"score {like}")


def _scores_of(value: Any, what: str) -> Sequence[Score]:
    """Return a score, several, or a plain function as a score.

    Raises:
        UsageError: it is something else; the message names `what`.
    """
    if isinstance(value, Score):
        return [value]
    if isinstance(value, list | tuple):
        return [one for each in value for one in _scores_of(each, what)]
    if callable(value) and not inspect.isclass(value):
        return [score(value)]
    raise UsageError(
        f"{what}: {type(value).__name__} is not a score: write @score above a function of a sample"
    )
