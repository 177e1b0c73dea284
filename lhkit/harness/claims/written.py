"""Does a reply tell of what was written? A learned score, where writes ran. Pure.

Its marks say how the words of a reply and of the user's line before it stand to what was written:
which things and values they name that no write holds, what a write holds that they do not name,
whether the tool does another sort of deed or is about another sort of thing, and what is said of
writes that failed. A linear model weighs the marks and their pairs, a byte each in `written.bin`;
`evals/claims_written.py` learns them. It never judges alone: `rules` asks it where a write ran and
no rule found a false claim.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Any

from lhkit.harness.claims import values
from lhkit.harness.claims.wording import place_of, weighed

SIZE = 1 << 14
"""How many weights there are: that of a mark, or of a pair, is found by its hash."""
_OF_PAIRS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A write: its tool, its arguments, and other words for what it was about."""

    tool: str
    args: Any
    names: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ToldOfWrites:
    """A reply after writes: what it says, what the user had said, what ran and what did not.

    Attributes:
        said: the user's last line.
        reply: all that the reply tells, without questions.
        claims: the sentences of it that tell of a deed; none if nobody can tell which.
        clauses: the clauses in which they do.
        denials: the clauses that say that something is not so.
        quoted: what stands in quotation marks.
        done: the writes that ran.
        lost: those that failed, and were not made up for.
        marks: what the rules see.
        likeness: how much it would read like a claim if no write had run.
    """

    said: str
    reply: str
    claims: Sequence[str]
    clauses: Sequence[str]
    denials: Sequence[str]
    quoted: str
    done: Sequence[Call]
    lost: Sequence[Call]
    marks: frozenset[str]
    likeness: float

    @property
    def score(self) -> float:
        """How much it reads like a claim of something else: above 0 more like one than not."""
        return weighed(self.features(), "written")

    def features(self) -> Iterator[tuple[int, float]]:
        """Yield the place of each weight, and its value."""
        marks = sorted(
            {
                *self.marks,
                *self._of_things(),
                *self._of_values(),
                *self._of_deeds(),
                *self._of_the_lost(),
            }
        )
        yield place_of("", 0, SIZE), 1.0
        yield place_of("likeness", 0, SIZE), max(-2.0, min(2.0, self.likeness / 1.5))
        for mark in marks:
            yield place_of(mark, 1, SIZE), 1.0
        for one, other in combinations(marks, 2):
            yield place_of(f"{one}|{other}", 2, SIZE), _OF_PAIRS

    @cached_property
    def _told(self) -> str:
        return " ".join(self.claims) or self.reply

    @cached_property
    def _named(self) -> Sequence[str]:
        return [name for each in self.done for name in (each.tool, *each.names)]

    @cached_property
    def _texts(self) -> Sequence[tuple[str, str]]:
        """The texts of the arguments, by name."""
        leaves = (leaf for each in self.done for leaf in values.leaves(each.args))
        return [(key, text) for key, text in leaves if isinstance(text, str) and text]

    @cached_property
    def _keys(self) -> Sequence[str]:
        return [key for each in self.done for key in values.keys(each.args)]

    def _of_things(self) -> Iterator[str]:
        """Yield how the things that are named stand to those that were written."""
        stems = values.stems
        known = {
            word
            for text in (*(text for _, text in self._texts), *self._named, *self._keys)
            for word in stems(text)
        }
        told = values.content(self._told)
        done = {name for each in self.done for name in _sorts(each.tool, _DEEDS)}
        shared = {
            word
            for word in values.content(self.said)
            if _is_in(word, told) and not (not _is_latin(word) and _named_in(word, _DEEDS) & done)
        }  # "넣어" of "넣어 드렸어요" is what was done, and no thing
        new = {word for word in shared if not _is_in(word, known)}
        latin = {_is_latin(each) for key, text in self._texts if _names(key, text) for each in text}
        rival = {word for word in new if _is_latin(word) in latin}
        here = {*stems(self.said), *stems(self.reply)}
        unsaid, unsaid_name, partly, wholly = self._leaves_said(here)
        yield f"new {min(len(new), _MANY)}"
        yield f"rival {min(len(rival), 2)}"
        yield from _true(
            {
                "known": shared > new,
                "unsaid": unsaid,
                "unsaid name": unsaid_name,
                "partly": partly,
                "wholly": wholly,
                "rival unsaid": rival and unsaid,
                "rival unsaid name": rival and unsaid_name,
                "rival partly": rival and partly,
                "rival only": rival and shared == new,
                "near": any(_is_near(word, each, here) for word in new for each in known),
                "more": _MORE.search(self._told),
                "more new": _MORE.search(self._told) and new,
            }
        )
        quoted = {word for word in stems(self.quoted) if len(word) > 1 and not _is_in(word, known)}
        scripts = {_is_latin(each) for each in known}
        strange = any(_is_latin(word) in scripts for word in quoted)
        yield from _true({"quoted": strange, "quoted unsaid": strange and (unsaid or partly)})

    def _leaves_said(self, here: Collection[str]) -> tuple[bool, bool, bool, bool]:
        """Return if a text of the arguments is not said, one that names, partly said, wholly."""
        unsaid = unsaid_name = partly = wholly = False
        is_latin = re.search(r"[가-힣]", self.reply) is None
        for key, text in self._texts:
            if not _names(key, text) or values.is_time(key):
                continue
            words = [each for each in values.stems(text) if len(each) > 1 or not _is_latin(each)]
            if not 0 < len(words) <= _FEW or is_latin not in {_is_latin(each) for each in words}:
                continue
            said = [any(_is_said(word, each) for each in here) for word in words]
            if all(said):
                wholly = True
            elif any(said):
                partly = True
            else:
                unsaid = True
                unsaid_name |= values.is_naming(key)
        return unsaid, unsaid_name, partly, wholly

    def _of_values(self) -> Iterator[str]:
        """Yield which numbers, times, days and choices are told that no write holds."""
        args = [each.args for each in self.done]
        held, near = values.held(args), values.near(args, self._named)
        told, asked = values.values_of(self.reply), values.values_of(self.said)
        yield from _true(
            {
                "other value": values.other_value(self.said, self.reply, args, self._named),
                "value swapped": any(
                    sort == rival[0] and rival not in told | asked
                    for sort, _ in (told & asked) - near
                    for rival in held
                ),
            }
        )
        for sort, value in told - near:
            is_asked = (sort, value) in asked
            if sort == "number" and not is_asked:  # what a result holds: "3 lemons are left"
                continue
            rivals = {each for each in held if each[0] == sort}
            if rivals and not rivals & told:
                yield f"value {'asked' if is_asked else 'new'}"
                yield f"value {sort.split()[0]}"
            if is_asked and sort in {"clock", "day", "weekday"}:
                yield "value of a time"

    def _of_deeds(self) -> Iterator[str]:
        """Yield if the tools do another sort of deed, or are about another sort of thing."""
        clauses = " ; ".join(self.clauses) or self.reply
        asked = self.said.casefold()
        told, said = _named_in(clauses, _DEEDS), _named_in(asked, _DEEDS)
        sorts = [_sorts(each.tool, _DEEDS) for each in self.done]
        other = {
            name
            for name in told | said
            if all(
                own and name not in own and any(name in _EXCLUDED[each] for each in own)
                for own in sorts
            )
        }
        yield from _true(
            {
                "deed told": told & other,
                "deed said": said & other,
                "deed both": told & said & other,
            }
        )
        of = {name for each in self.done for name in _sorts(each.tool, _THINGS)}
        every = " ".join([*self._named, *(text for _, text in self._texts), *self._keys])
        named = _named_in(every.casefold().replace("_", " "), _THINGS)
        told, said = _named_in(clauses, _THINGS), _named_in(asked, _THINGS)
        yield from _true(
            {"thing both": of and (told & said) - of - named, "thing known": told & of}
        )

    def _of_the_lost(self) -> Iterator[str]:
        """Yield what is said of the writes that failed, and of those that ran."""
        lost, own = _about(self.lost), _about(self.done)
        lost, own = lost - own, own - lost
        yes = [each for each in self.clauses if each not in self.denials]
        near = values.near([each.args for each in self.done], self._named)
        missed = values.near([each.args for each in self.lost], ()) - near
        yield from _true(
            {
                "lost told": any(_tells(lost, each) for each in yes),
                "lost told alone": any(
                    _tells(lost, each) and not _tells(own, each) for each in yes
                ),
                "own told": any(_tells(own, each) for each in yes),
                "own denied": any(
                    _tells(own, each) and not _tells(lost, each) for each in self.denials
                ),
                "lost denied": any(_tells(lost, each) for each in self.denials),
                "lost value": any(missed & values.values_of(each) for each in yes),
            }
        )


_MANY, _FEW = 3, 5
_MORE = re.compile(r"[가-힣]도(?:\s|$)|까지\s|\b(?:also|too|as well|both)\b")
_HANGUL = "가"


def _true(marks: Mapping[str, object]) -> list[str]:
    return [mark for mark, is_so in marks.items() if is_so]


def _is_latin(word: str) -> bool:
    return word[0] < _HANGUL


def _is_in(word: str, words: Collection[str]) -> bool:
    return any(values.same(word, each) for each in words)


def _is_said(word: str, other: str) -> bool:
    is_part = not _is_latin(word) and not _is_latin(other) and len(word) > 1 and word in other
    return is_part or values.same(word, other)


def _is_near(word: str, other: str, here: Collection[str]) -> bool:
    """Return True if a word begins like another, which is not said: Marta, Martin."""
    least, same = (3, 2) if _is_latin(word) else (2, 1)
    is_alike = (
        _is_latin(word) == _is_latin(other)
        and min(len(word), len(other)) >= least
        and word[:same] == other[:same]
        and not values.same(word, other)
    )
    return is_alike and not _is_in(other, here)


def _names(key: str, text: str) -> bool:
    """Return True if an argument may name something as people say it: no id, no address."""
    return not (values.is_free(key) or re.search(r"[\d@]", text))


def _about(calls: Sequence[Call]) -> frozenset[str]:
    """Return the words for what some writes were about, with those of their tools."""
    texts = (
        text
        for each in calls
        for text in (
            each.tool,
            *each.names,
            *(
                leaf
                for key, leaf in values.leaves(each.args)
                if isinstance(leaf, str) and (not values.is_text(key) or len(leaf.split()) < _FEW)
            ),
        )
    )
    return frozenset(
        word
        for text in texts
        for word in values.stems(text)
        if len(word) >= (3 if _is_latin(word) else 2)
        and word not in _tool_words()
        and not values.is_filler(word)
    )


def _tells(words: Collection[str], text: str) -> bool:
    said = values.stems(text)
    return any(values.same(one, other) for one in words for other in said)


# ----------------------------------------------------------------------- sorts of deeds and things


@dataclass(frozen=True, kw_only=True)
class _Sort:
    """A sort of deed or thing: how it is said, the words of its tools, and what they do not do."""

    name: str
    english: str
    korean: str
    tools: str
    excludes: str = ""

    def stands_in(self, text: str) -> bool:
        """Return True if a text names it."""
        return self._pattern.search(text) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(rf"\b(?:{self.english})\b|{self.korean}")

    @cached_property
    def words(self) -> frozenset[str]:
        """The words by which a tool is of it."""
        return frozenset(self.tools.split())


_DEEDS = (
    _Sort(
        name="add",
        english=(
            r"add(?:ed|ing)?|creat\w*|new|insert\w*|put|made|include\w*|regist\w*|"
            r"enter\w*"
        ),
        korean="추가|등록|만들|넣|생성|담|올[려렸리]",
        tools="add create new insert register make append write subscribe",
        excludes="remove cancel pause merge rename undo archive tick",
    ),
    _Sort(
        name="log",
        english=r"logs?|logged|record\w*|track\w*|entr\w+|note[ds]?\s+down",
        korean="기록|적어|적었|남[겨겼기]",
        tools="log record track entry",
        excludes="remove cancel pause merge rename archive order book pay send",
    ),
    _Sort(
        name="tick",
        english=r"tick\w*|check(?:ed)?\b.*\boff|cross\w*\b.*\boff|mark\w*\b.*\bdone",
        korean=r"체크|줄\s?\S*\s?그",
        tools="complete check tick mark done finish",
        excludes="remove cancel pause merge rename archive add",
    ),
    _Sort(
        name="remove",
        english=(
            r"remov\w*|delet\w*|eras\w*|clear\w*|get\s+rid|drop\w*|bin(?:ned)?|"
            r"wipe\w*|trash\w*|took\b.*\boff|gone"
        ),
        korean="삭제|지[워웠우]|빼|뺐|빠졌|없[애앴]|비[워웠]",
        tools="remove delete erase clear drop unsubscribe empty",
        excludes="add pause rename archive tick move send order book change undo",
    ),
    _Sort(
        name="cancel",
        english=r"cancel\w*|call\w*\s+off|withdr\w*",
        korean="취소|해지|철회",
        tools="cancel",
        excludes="add pause rename archive move send order book undo change",
    ),
    _Sort(
        name="pause",
        english=r"paus\w*|skip\w*|snooz\w*|on\s+hold|take\s+a\s+break|muted?",
        korean=r"멈[춰췄추]|일시\s?정지|쉬[게어]|건너|음소거",
        tools="pause skip snooze mute stop dismiss",
        excludes="add remove rename",
    ),
    _Sort(
        name="merge",
        english=r"merg\w*|combin\w*",
        korean="합[쳐쳤치]|병합",
        tools="merge",
    ),
    _Sort(
        name="rename",
        english=r"renam\w*|is\s+called|goes\s+by|name",
        korean="이름|개명|제목",
        tools="rename",
        excludes="remove cancel send move",
    ),
    _Sort(
        name="move",
        english=r"mov\w*|shift\w*|resched\w*|push\w*|postpon\w*|bump\w*",
        korean="옮[겨겼기]|미[뤄뤘루]|당[겨겼기]|이동|연기",
        tools="move reschedule shift postpone",
        excludes="remove cancel send",  # a file is renamed by a move
    ),
    _Sort(
        name="change",
        english=(
            r"chang\w*|updat\w*|edit\w*|swap\w*|switch\w*|set|rais\w*|lower\w*|"
            r"replac\w*"
        ),
        korean="바[꿔꿨꾸뀌]|변경|수정|교체|설정|맞[춰췄추]",
        tools="update change edit set modify adjust switch replace",
        excludes="send remove merge",
    ),
    _Sort(
        name="send",
        english=(
            r"send|sent|sends|email\w*|text(?:ed)?|messag\w*|forward\w*|"
            r"repl(?:y|ied|ies)|shar\w*|post(?:ed)?|invit\w*|tell|told|"
            r"let\s+\w+\s+know"
        ),
        korean="보[내냈]|전송|발송|전달|공유|답장|회신|초대|알[려렸]",
        tools="send email text message forward reply share post invite notify",
        excludes="remove cancel rename",
    ),
    _Sort(
        name="order",
        english=r"order\w*|buy|bought|purchas\w*",
        korean=r"주문|구매|결제|시[켜켰]|샀|사\s?줘",
        tools="order buy purchase",
        excludes="cancel",
    ),
    _Sort(
        name="pay",
        english=r"pay|paid|pays|transfer\w*|wired?",
        korean="송금|이체|입금|납부",
        tools="pay transfer wire",
        excludes="cancel",
    ),
    _Sort(
        name="book",
        english=r"book\w*|reserv\w*",
        korean="예약|예매",
        tools="book reserve",
        excludes="cancel",
    ),
    _Sort(
        name="archive",
        english=r"archiv\w*",
        korean="보관",
        tools="archive",
        excludes="remove",
    ),
    _Sort(
        name="lock",
        english=r"lock\w*",
        korean="잠[갔가그궜]",
        tools="lock",
        excludes="unlock",
    ),
    _Sort(
        name="unlock",
        english=r"unlock\w*",
        korean="열[었어]",
        tools="unlock",
        excludes="lock",
    ),
    _Sort(
        name="undo",
        english=r"undo\w*|undid|undone|restor\w*|revert\w*|back\s+to",
        korean="되돌|복구|복원",
        tools="undo restore revert",
    ),
    _Sort(
        name="open",
        english=r"open\w*",
        korean="열",
        tools="open",
        excludes="close",
    ),
    _Sort(
        name="close",
        english=r"clos\w*|shut",
        korean="닫",
        tools="close",
        excludes="open",
    ),
    _Sort(
        name="draft",
        english=r"draft\w*",
        korean="초안",
        tools="draft",
        excludes="send",
    ),
    _Sort(
        name="fill",
        english="basket|cart",
        korean="장바구니|카트",
        tools="cart basket",
        excludes="order",
    ),
)
_THINGS = (
    _Sort(
        name="note",
        english="notes?",
        korean="메모|노트",
        tools="note memo notes",
    ),
    _Sort(
        name="reminder",
        english="reminders?|remind",
        korean="알림|리마인더",
        tools="reminder remind",
    ),
    _Sort(
        name="alarm",
        english="alarms?",
        korean="알람",
        tools="alarm",
    ),
    _Sort(
        name="timer",
        english="timers?",
        korean="타이머",
        tools="timer",
    ),
    _Sort(
        name="todo",
        english="to-?dos?|tasks?",
        korean=r"할\s?일",
        tools="todo task item",
    ),
    _Sort(
        name="event",
        english="events?|calendar|meeting|appointment",
        korean="일정|캘린더",
        tools="event calendar meeting appointment",
    ),
    _Sort(
        name="contact",
        english="contacts?",
        korean="연락처",
        tools="contact",
    ),
    _Sort(
        name="email",
        english="e?-?mails?",
        korean="메일",
        tools="email mail",
    ),
    _Sort(
        name="file",
        english="files?",
        korean="파일",
        tools="file document",
    ),
    _Sort(
        name="habit",
        english="habits?",
        korean="습관",
        tools="habit",
    ),
    _Sort(
        name="playlist",
        english="playlists?",
        korean=r"플레이리스트|재생\s?목록",
        tools="playlist",
    ),
    _Sort(
        name="favourite",
        english="favou?rites?",
        korean="즐겨찾기",
        tools="favorite favourite",
    ),
    _Sort(
        name="cart",
        english="cart|basket",
        korean="장바구니|카트",
        tools="cart basket",
    ),
    _Sort(
        name="order",
        english="orders?|ordered",
        korean="주문",
        tools="order",
    ),
    _Sort(
        name="message",
        english="messages?|texts?",
        korean="문자|톡|메시지",
        tools="message text sms",
    ),
    _Sort(
        name="light",
        english="lights?|lamp",
        korean="조명|불[을은이도]",
        tools="light lamp",
    ),
    _Sort(
        name="goal",
        english="goals?|target",
        korean="목표",
        tools="goal target",
    ),
    _Sort(
        name="photo",
        english="photos?",
        korean="사진",
        tools="photo image",
    ),
    _Sort(
        name="room",
        english="rooms?",
        korean="방",
        tools="room",
    ),
    _Sort(
        name="door",
        english="doors?",
        korean="문[을은이도]",
        tools="door",
    ),
)
_EXCLUDED = {each.name: frozenset(each.excludes.split()) for each in _DEEDS}


@cache
def _tool_words() -> frozenset[str]:
    return frozenset(word for each in _DEEDS for word in each.words)


def _sorts(tool: str, sorts: Sequence[_Sort]) -> frozenset[str]:
    words = {*re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", tool).casefold())}
    return frozenset(each.name for each in sorts if each.words & words)


def _named_in(text: str, sorts: Sequence[_Sort]) -> frozenset[str]:
    """Return the sorts of deeds or things that a text names."""
    return frozenset(each.name for each in sorts if each.stands_in(text))
