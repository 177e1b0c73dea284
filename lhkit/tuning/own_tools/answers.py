"""What became of the wishes of a phrase file, tool by tool. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lhkit.tuning.own_tools.acting import Said
from lhkit.tuning.own_tools.phrase_file import PhraseFile

_TOO_MANY = 1 / 3
"""Share of wishes not found from which a file is told to look for what its worlds do not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How the wishes for one tool ended.

    `outcomes` counts them by key of `replies`, the most frequent first. `unused` are replies that
    were never said, such as `ok[1] (phrases.yaml:23)`. `missing` is the share of wishes that were
    not found, though their words are not from `failing`.
    """

    tool: str
    outcomes: Mapping[str, int]
    unused: Sequence[str]
    missing: float

    @property
    def is_missing_much(self) -> bool:
        """True if the worlds hold too little of what is asked for."""
        return self.missing > _TOO_MANY


def answers_of(book: PhraseFile, said: Sequence[Said]) -> tuple[Answers, ...]:
    """Return how the wishes ended, by tool in the order of the file.

    Replies of a language in which nothing was said are not looked at.
    """
    locales = {each.wish.locale for each in said}
    spoken = [phrases for name, phrases in book.phrases.locales.items() if name in locales]
    tools = dict.fromkeys(tool for phrases in spoken for tool in phrases.tools)
    return tuple(
        Answers(
            tool=tool,
            outcomes=dict(Counter(each.outcome for each in ours).most_common()),
            unused=tuple(_unused(book, tool, ours, locales)),
            missing=_missing(ours),
        )
        for tool in tools
        for ours in ([each for each in said if each.wish.tool == tool],)
    )


def _missing(said: Sequence[Said]) -> float:
    meant = [each.outcome for each in said if not each.wish.is_to_fail]
    return sum(outcome.endswith("not_found") for outcome in meant) / max(1, len(meant))


def _unused(book: PhraseFile, tool: str, said: Sequence[Said], locales: set[str]) -> Iterator[str]:
    """Yield the replies that were never said; of an outcome that never came, only its key."""
    used = {(each.wish.locale, each.outcome, each.reply) for each in said}
    for locale in sorted(locales):
        phrases = book.phrases.locales[locale].tools.get(tool)
        for outcome, replies in phrases.replies.items() if phrases else ():
            path = ("locales", locale, "tools", tool, "replies", outcome)
            silent = [n for n, reply in enumerate(replies) if (locale, outcome, reply) not in used]
            if len(silent) == len(replies):
                yield f"{outcome} ({book.file.name}:{book.document.line(path)})"
                continue
            for number in silent:
                line = book.document.line((*path, number))
                yield f"{outcome}[{number}] ({book.file.name}:{line})"
