"""From phrases to played conversations: what is drawn, and what the real tools make of it."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from lhkit.chat.controller import Assistant
from lhkit.errors import TuningError
from lhkit.messages import ToolErr, ToolOk, ToolResult
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.data import TrainingSequence
from lhkit.tuning.phrases.check import check_fit
from lhkit.tuning.phrases.file import PhraseFile, read_phrases
from lhkit.tuning.phrases.generate import DrawingStage, Drawn, conversations
from lhkit.tuning.teacher import simulate

MONDAY = date(2026, 6, 15)


def set_timer(args: Mapping[str, Any], timers: list[str]) -> ToolResult:
    if args["name"] == "crash":
        raise RuntimeError("crash")
    if args["name"] in timers:
        return ToolErr("taken", "the name is taken")
    timers.append(args["name"])
    return ToolOk({"timer": args["name"], "all": list(timers)})


def show_timers(_args: Mapping[str, Any], timers: list[str]) -> ToolResult:
    return ToolOk({"timers": [{"name": name} for name in timers]})


REGISTRY = ToolRegistry(
    [
        echo_tool(
            "set_timer",
            parameters=object_schema(
                "name", "day", name={"type": "string"}, day={"type": "string", "format": "date"}
            ),
            handler=set_timer,
            is_destructive=True,
        ),
        echo_tool("show_timers", handler=show_timers),
    ]
)


@dataclass
class TimerSession:
    timers: list[str]
    today: date = MONDAY
    registry: ToolRegistry = field(default_factory=lambda: REGISTRY)

    @property
    def assistant(self) -> Assistant:
        return Assistant(instructions="Timers.", deps=self.timers)

    def state(self) -> Mapping[str, Any]:
        return {"timers": [{"name": name} for name in self.timers]}

    def close(self) -> None:
        pass


class Timers:
    def open(self, world: Mapping[str, Any], locale: str) -> TimerSession:
        return TimerSession([row["name"] for row in world.get("timers", [])])


PHRASES = """\
worlds:
  - timers: []
  - timers: [{name: 라면}]
locales:
  ko:
    tools:
      set_timer:
        say: ['{day} {name:을} 알려 줘', '{name} 타이머, {day}']
        values:
          name: [차, 물, 빨래, 달걀, {say: [밥, 쌀밥], value: rice}]
          day:
            - {say: 오늘, date: today}
            - {say: 일주일 뒤, date: today+1w}
        failing:
          name: [라면]
        replies:
          ok: ['{name:을} 맞췄어요. 모두 {all:count}개예요.']
          taken: ['{name:은} 이미 있어요: {reason}']
          cancelled: [맞추지 않았어요.]
      show_timers:
        say: [뭐 맞춰 놨어?, 타이머 보여 줘]
        replies:
          ok: ['{timers.name}이 있어요.']
          not_found: [하나도 없어요.]
    two_wishes: ['{first}. 그리고 {second}']
    small_talk:
      - {say: [안녕], answer: [안녕하세요]}
    out_of_scope:
      - {say: [날씨 어때?], answer: [몰라요.]}
"""

Played = Callable[..., Any]


def book_of(folder: Path, text: str = PHRASES) -> PhraseFile:
    file = folder / "p.yaml"
    file.write_text(text, encoding="utf-8")
    book = read_phrases(file)
    check_fit(book, dict.fromkeys(book.phrases.locales, REGISTRY))
    return book


def drawn(book: PhraseFile, count: int, seed: int = 1, korean_share: float = 0.6) -> list[Any]:
    stage = DrawingStage(registry=REGISTRY, days=[MONDAY] * len(book.phrases.worlds))
    stages = dict.fromkeys(book.phrases.locales, stage)
    return list(conversations(book, stages, count=count, seed=seed, korean_share=korean_share))


async def played(book: PhraseFile, count: int = 150) -> tuple[TrainingSequence, ...]:
    return await simulate(drawn(book, count), Timers(), progress=False)


@pytest.mark.anyio
async def test_what_the_model_learns_to_say_is_what_the_real_tools_did(tmp_path: Path) -> None:
    sequences = await played(book_of(tmp_path))
    text = "\n".join(each.text for each in sequences)
    assert '"parameters": {"name":"빨래","day":"2026-06-15"}}<end_of_turn>' in text
    for result, words in (
        ('"data":{"timer":"빨래","all":["빨래"]}}', "빨래를 맞췄어요. 모두 1개예요."),
        ('"code":"taken","reason":"the name is taken"}', "라면은 이미 있어요: the name is taken"),
        ('"status":"cancelled","reason":"user did not confirm"}', "맞추지 않았어요."),
        ('{"timers":[]}}', "하나도 없어요."),
        ('{"timers":[{"name":"라면"}]}}', "라면이 있어요."),
        ("날씨 어때?", "몰라요."),
    ):
        assert f"{result}<end_of_turn>\n<start_of_turn>model\n{words}<end_of_turn>" in text


@pytest.mark.anyio
async def test_words_and_values_may_differ_and_days_count_from_the_world(tmp_path: Path) -> None:
    sequences = await played(book_of(tmp_path))
    rice = [each.text for each in sequences if "쌀밥 타이머, 일주일 뒤<end_of_turn>" in each.text]
    assert rice
    assert all('{"name":"rice","day":"2026-06-22"}' in text for text in rice)
    assert any("쌀밥을 맞췄어요" in text for text in rice)


@pytest.mark.anyio
async def test_two_wishes_are_two_calls_and_one_answer(tmp_path: Path) -> None:
    sequences = await played(book_of(tmp_path))
    several = [each for each in sequences if each.kind == "two_wishes"]
    assert several
    for sequence in several:
        first, second, words = (sequence.text[begin:end] for begin, end in sequence.answers[:3])
        assert {first[:20], second[:20]} == {'{"name": "set_timer"', '{"name": "show_timer'}
        assert "맞췄어요" in words or "이미 있어요" in words


@pytest.mark.anyio
async def test_each_wish_is_told_with_what_it_came_to_and_whether_it_was_to_fail(
    tmp_path: Path,
) -> None:
    book, said = book_of(tmp_path), list[Drawn]()
    stage = DrawingStage(registry=REGISTRY, days=[MONDAY] * 2, notify=said.append)
    told = conversations(book, {"ko": stage}, count=60, seed=1, korean_share=1.0)
    sequences = await simulate(tuple(told), Timers(), progress=False)
    assert {each.wish.words["name"] for each in said if each.wish.is_to_fail} == {"라면"}
    assert all(each.wish.words.get("name") != "라면" for each in said if not each.wish.is_to_fail)
    assert {each.outcome for each in said} == {"ok", "taken", "cancelled", "not_found"}
    text = "".join(each.text for each in sequences)
    answers = re.findall(r"model\n([^{\n].*)<end_of_turn>", text)
    spoken = " ".join(each for each in answers if each not in {"안녕하세요", "몰라요."})
    assert Counter(spoken.split()) == Counter(" ".join(each.text for each in said).split())


def test_every_kind_has_its_share_also_where_few_phrases_stand_for_it(tmp_path: Path) -> None:
    kinds = Counter(each.kind for each in drawn(book_of(tmp_path), 1_000))
    assert kinds["call"] == max(kinds.values())
    for kind in ("cancelled", "failing", "two_wishes", "small_talk", "out_of_scope"):
        assert kinds[kind] > 30


def test_shares_say_how_many_conversations_begin_with_a_kind(tmp_path: Path) -> None:
    shares = "shares: {two_wishes: 0.5, small_talk: 0, failing: 0.2}\n"
    kinds = Counter(each.kind for each in drawn(book_of(tmp_path, shares + PHRASES), 1_000))
    assert 420 < kinds["two_wishes"] < 580
    assert 140 < kinds["failing"] < 260
    assert kinds["small_talk"] == 0
    assert kinds["call"] > 3 * kinds["cancelled"] > 30, "the others share the rest as ever"


def test_kinds_may_have_all_conversations_and_none(tmp_path: Path) -> None:
    all_talk = "shares: {small_talk: 0.5, out_of_scope: 0.5}\n"
    kinds = Counter(each.kind for each in drawn(book_of(tmp_path, all_talk + PHRASES), 100))
    assert kinds.keys() == {"small_talk", "out_of_scope"}


FOLLOW_UP = """\
    before: ['비가 와서']
    follow_ups:
      - lines:
          - say: [차 타이머 켜]
            calls: [{tool: set_timer, args: {name: 차, day: {date: today}}}]
          - {say: [역시], answer: [네.]}
"""


@pytest.mark.parametrize(("share", "words"), [("1", {"비가"}), ("0", {"차"})])
def test_words_around_a_wish_have_a_share_and_a_talk_begins_with_a_wish(
    tmp_path: Path, share: str, words: set[str]
) -> None:
    shares = f"shares: {{before: {share}, follow_ups: 1}}\ntypos: false\n"
    told = drawn(book_of(tmp_path, shares + PHRASES + FOLLOW_UP), 20)
    assert {each.lines[0].user.split()[0] for each in told} == words
    assert {each.lines[1].user for each in told} == {"역시"}


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ("{two_wishes: 1.5}", r"shares.two_wishes: must be 1 or less"),
        ("{jokes: 0.5}", r"shares.jokes: must be one of "),
        ("{two_wishes: 0.7, failing: 0.4, before: 1}", r"shares: .* add up to 1\.1: .*"),
        ("{near_misses: 0.1}", r"shares.near_misses: no language has `near_misses`: .*"),
        ("{before: 0.1}", r"shares.before: no language has `before`: .*"),
    ],
)
def test_shares_that_cannot_be_are_refused_with_their_line(
    tmp_path: Path, shares: str, sentence: str
) -> None:
    with pytest.raises(TuningError, match=rf"p.yaml:1: {sentence}"):
        book_of(tmp_path, f"shares: {shares}\n{PHRASES}")


def test_a_share_of_noes_needs_a_tool_that_writes_and_one_of_failing_needs_values(
    tmp_path: Path,
) -> None:
    only_reads = """\
shares: {cancelled: 0.2, failing: 0.1}
locales:
  ko:
    tools:
      show_timers:
        say: [뭐 맞춰 놨어?]
        replies: {ok: ['{timers.name}이 있어요.'], not_found: [하나도 없어요.]}
"""
    file = tmp_path / "p.yaml"
    file.write_text(only_reads, encoding="utf-8")
    reading = ToolRegistry([tool for tool in REGISTRY.values() if not tool.is_destructive])
    with pytest.raises(TuningError, match=r"cancelled: no tool that somebody asks") as caught:
        check_fit(read_phrases(file), {"ko": reading})
    assert "failing: no sentence says an argument that has `failing`" in str(caught.value)


def test_shares_that_leave_nothing_are_refused(tmp_path: Path) -> None:
    nothing = "{two_wishes: 0, failing: 0, cancelled: 0, small_talk: 0, out_of_scope: 0}"
    text = PHRASES.replace("locales:", f"shares: {nothing}\nlocales:")
    assert {each.kind for each in drawn(book_of(tmp_path, text), 50)} == {"call"}
    unasked = text.replace("say: [뭐 맞춰 놨어?, 타이머 보여 줘]", "say: []")
    unasked = re.sub(r"say: \['\{day\}.*", "say: []", unasked)
    with pytest.raises(TuningError, match=r"shares: nothing is left .* 'ko' begins with"):
        book_of(tmp_path, unasked)


def test_a_share_of_two_wishes_needs_two_tools_that_somebody_asks_for(tmp_path: Path) -> None:
    text = PHRASES.replace("locales:", "shares: {two_wishes: 0.5}\nlocales:")
    with pytest.raises(TuningError, match=r"shares.two_wishes: no language has .* two tools"):
        book_of(tmp_path, text.replace("say: [뭐 맞춰 놨어?, 타이머 보여 줘]", "say: []"))


def test_a_seed_decides_everything(tmp_path: Path) -> None:
    def said(seed: int) -> list[Any]:
        told = drawn(book_of(tmp_path), 40, seed=seed)
        return [(each.name, each.world, [line.user for line in each.lines]) for each in told]

    assert said(3) == said(3)
    assert said(3) != said(4)


@pytest.mark.parametrize(("share", "locales"), [(0.0, {"en"}), (1.0, {"ko"}), (0.5, {"ko", "en"})])
def test_languages_have_the_share_that_was_asked_for(
    tmp_path: Path, share: float, locales: set[str]
) -> None:
    english = PHRASES[PHRASES.index("  ko:") :].replace("  ko:", "  en:")
    book = book_of(tmp_path, PHRASES + english)
    assert {each.locale for each in drawn(book, 60, korean_share=share)} == locales


def test_a_file_of_one_language_is_drawn_whatever_the_share(tmp_path: Path) -> None:
    assert {each.locale for each in drawn(book_of(tmp_path), 5, korean_share=0.0)} == {"ko"}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "{all:count}",
            "{total:count}",
            r"\{total:count\} is not there: set_timer came to `ok` with .* no reply for it can be",
        ),
        (
            "          taken: ['{name:은} 이미 있어요: {reason}']\n",
            "",
            r"p\.yaml:\d+: .*replies: set_timer came to `taken` with .* write one under `taken` or",
        ),
        (
            "name: [라면]",
            "name: [crash]",
            r"p\.yaml:\d+: .*: the tool set_timer answered handler_error to .*crash",
        ),
    ],
)
@pytest.mark.anyio
async def test_a_play_that_no_words_are_written_for_is_told(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    assert PHRASES.count(old) == 1
    with pytest.raises(TuningError, match=sentence):
        await played(book_of(tmp_path, PHRASES.replace(old, new)))


NOISY = "Tell me the Time of {name} now"
ENGLISH = f"""\
locales:
  en:
    before: [hey]
    after: [please, '!!']
    tools:
      set_timer:
        say: ['{NOISY}']
        values:
          name: [the Tea., 'please, You']
          day: [{{say: today, date: today}}]
        replies: {{ok: [yes], refused: [no], cancelled: [no]}}
      show_timers:
        say: ['show "the Timers"']
        replies: {{ok: [those], not_found: [none]}}
"""


def said_in(folder: Path, text: str) -> set[str]:
    text = text.replace("{name} now", "{name} now on {day}")
    return {line.user for each in drawn(book_of(folder, text), 500) for line in each.lines}


def test_some_sentences_are_typed_carelessly_and_never_the_words_of_an_argument(
    tmp_path: Path,
) -> None:
    told = said_in(tmp_path, ENGLISH)
    assert "Tell me teh Time of the Tea. now on today" in told
    assert "tell me the time of the Tea. now on today" in told
    assert "hey Tell me the Time of please, You now on today" in told
    assert "Tell me the Time of the Tea. now on today please" in told
    timers = {each for each in told if "Timers" in each}
    assert all('show "the Timers"' in each for each in timers)
    assert 'show "the Timers"!!' in timers
    others = told - timers
    assert all("the Tea." in each or "please, You" in each for each in others)
    assert not any(each.endswith("You now on today please") for each in others)
    assert any(each.endswith("You now on today!!") for each in others)


def test_without_typos_and_words_around_everything_is_said_as_it_is_written(
    tmp_path: Path,
) -> None:
    plain = ENGLISH.replace("    before: [hey]\n", "").replace("    after: [please, '!!']\n", "")
    assert said_in(tmp_path, f"typos: false\n{plain}") == {
        'show "the Timers"',
        "Tell me the Time of the Tea. now on today",
        "Tell me the Time of please, You now on today",
    }


def test_a_korean_sentence_loses_a_space_and_keeps_its_particles(tmp_path: Path) -> None:
    told = {line.user for each in drawn(book_of(tmp_path), 900) for line in each.lines}
    assert "오늘 차를 알려줘" in told
    assert "오늘 차를 알려 죠" in told
