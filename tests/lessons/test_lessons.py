"""What life-helper's training conversations teach, looked at as they are played."""

import ast
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from evals.lessons import scene
from evals.lessons.conversations import KINDS, conversations
from evals.lessons.phrases import phrases
from lhkit.harness.record import SampleRecord
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.lifehelper import toolset as life_helper
from lhkit.lifehelper.catalog import load_protocols
from lhkit.lifehelper.rules import negation_in
from lhkit.models.dialects import DIALECTS
from lhkit.tuning.teacher import Conversation, ExpertModel, scenario_of, simulate

LOCALES = ("ko", "en")
COUNT = 500
WANTED_REFUSALS = {"r3_quota", "r7_framing", "r8_anchor", "invalid_date"}
UNLISTED = {"unlisted_write", "retry_after_rejection"}
"""The scenarios of a simulation expect nothing, so that every write is an unlisted one."""


@pytest.fixture(scope="module")
def told() -> tuple[Conversation, ...]:
    return tuple(conversations(COUNT, seed=3))


@pytest.fixture(scope="module")
async def run(told: Sequence[Conversation]) -> Run:
    by_name = {each.name: each for each in told}
    return await replay(
        [scenario_of(each) for each in told],
        lambda scenario, _: ExpertModel(by_name[scenario.id], DIALECTS["json"]),
        toolset=life_helper.LifeHelperToolset(),
        max_attempts=1,
        progress=False,
    )


def without_slips(
    run: Run, told: Sequence[Conversation]
) -> list[tuple[SampleRecord, Conversation]]:
    pairs = zip(run.records, told, strict=True)
    return [pair for pair in pairs if not any(line.slips for line in pair[1].lines)]


@pytest.mark.anyio
async def test_the_same_seed_gives_the_same_texts_and_another_seed_others() -> None:
    first, again, other = [
        await simulate(tuple(conversations(25, seed=seed)), life_helper.LifeHelperToolset())
        for seed in (1, 1, 2)
    ]
    assert first == again
    assert {each.text for each in first}.isdisjoint({each.text for each in other})


def test_every_kind_of_conversation_is_told_in_both_languages() -> None:
    told = Counter((each.kind, each.locale) for each in conversations(5_000, seed=4))
    assert set(told) == {(kind, locale) for kind in KINDS for locale in LOCALES}


@pytest.mark.parametrize(("share", "expected"), [(0.0, {"en"}), (1.0, {"ko"})])
def test_the_share_of_korean_is_the_one_asked_for(share: float, expected: set[str]) -> None:
    told = {each.locale for each in conversations(30, seed=0, korean_share=share)}
    assert told == expected


@pytest.mark.anyio
async def test_the_expert_claims_nothing_that_was_not_done(
    run: Run, told: Sequence[Conversation]
) -> None:
    seen = {v.code for record, _ in without_slips(run, told) for v in record.judgement.violations}
    assert seen <= WANTED_REFUSALS | UNLISTED
    assert "r3_quota" in seen


@pytest.mark.anyio
async def test_every_turn_ends_in_words_that_hold_no_call_and_no_empty_slot(run: Run) -> None:
    for record in run.records:
        for turn in record.evidence.turns:
            assert turn.ended == "answered", (record.sample_id, turn.user)
            assert turn.reply
            assert not re.search(r"[{}]|None", turn.reply), turn.reply


@pytest.mark.anyio
async def test_ids_are_used_only_after_a_tool_returned_them(
    run: Run, told: Sequence[Conversation]
) -> None:
    for record, conversation in without_slips(run, told):
        if conversation.kind.endswith("by-id"):
            continue  # the user named it
        shown = ""
        for turn in record.evidence.turns:
            for each in turn.calls:
                for name in ("habit_id", "protocol_id"):
                    wanted = (each.args or {}).get(name)
                    assert wanted is None or f'"{wanted}"' in shown, (conversation.kind, turn.user)
                shown += json.dumps(each.result, ensure_ascii=False)


@pytest.mark.anyio
async def test_after_a_no_the_same_call_is_not_made_again(
    run: Run, told: Sequence[Conversation]
) -> None:
    for record, conversation in zip(run.records, told, strict=True):
        if conversation.kind == "log-asked-again":
            continue  # the user wants it after all, and says so
        refused: list[tuple[str, object]] = []
        for turn in record.evidence.turns:
            for each in turn.calls:
                assert (each.tool, each.raw_args) not in refused, turn.user
                if each.result["status"] == "cancelled":
                    refused.append((each.tool, each.raw_args))
                    assert not re.search(r"기록했|추가했|저장했|\bI logged|\bAdded", turn.reply)


@pytest.mark.anyio
async def test_slips_are_in_the_history_but_not_learnt() -> None:
    told = [each for each in conversations(3_000, seed=6) if each.kind == "mended-date"]
    (sequence, *_) = await simulate(told, life_helper.LifeHelperToolset(), progress=False)
    learnt = [sequence.text[begin:end] for begin, end in sequence.answers]
    assert '"code":"validation"' in sequence.text
    queries = [text for text in learnt if "query_tracker" in text]
    assert queries
    assert all(re.search(r'"from":"\d{4}-\d{2}-\d{2}"', text) for text in queries)


@pytest.mark.parametrize("locale", LOCALES)
def test_what_is_searched_for_is_found_and_sentences_are_what_they_should_be(locale: str) -> None:
    spoken = phrases(locale).spoken
    assert set(spoken) == set(load_protocols())
    for protocol_id, said in spoken.items():
        for query in (*said.names, *(wish.query for wish in said.wishes)):
            assert protocol_id in scene.hits(query, locale), (protocol_id, query)
        assert all(negation_in(each) is None for each in said.sentences), protocol_id
        assert not any(wish.text.endswith(".") for wish in said.wishes), protocol_id
        assert negation_in(said.refused), protocol_id


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("key", ["told", "told_two", "told_opened", "told_absent"])
def test_a_wish_told_at_length_has_words_that_the_search_finds_or_rightly_not(
    locale: str, key: str
) -> None:
    for line in phrases(locale).lines[key]:
        _user, *queries = (part.strip() for part in line.split("|"))
        assert len(queries) == (2 if key == "told_two" else 1), line
        for query in queries:
            assert bool(scene.hits(query, locale)) is (key != "told_absent"), line


@pytest.mark.parametrize("locale", LOCALES)
def test_no_line_is_said_twice_under_one_key(locale: str) -> None:
    for key, lines in phrases(locale).lines.items():
        is_plain = isinstance(lines, list) and all(isinstance(line, str) for line in lines)
        if is_plain and key != "ask":  # there a word is as frequent as it stands there
            assert len(lines) == len(set(lines)), (key, Counter(lines).most_common(1))


def test_both_languages_have_the_same_keys() -> None:
    korean, english = map(phrases, LOCALES)
    assert set(korean.lines) == set(english.lines)
    assert set(korean.replies) == set(english.replies)
    for key in ("category", "category_name", "frame"):
        assert set(korean.lines[key]) == set(english.lines[key])


def test_every_phrase_has_somebody_who_says_it() -> None:
    """A key is named in full, by a template such as f"log_{value}", or as a word and its ending."""
    whole, patterns = keys_in_code()
    endings = {text for text in whole if text.startswith("_")}
    for key in {*phrases("ko").lines, *phrases("ko").replies}:
        is_named = key in whole or any(re.fullmatch(each, key) for each in patterns)
        assert is_named or any(key.removesuffix(end) in whole for end in endings), key


def keys_in_code() -> tuple[set[str], set[str]]:
    """Return the texts in the talk's code, and patterns for those that begin with a fixed word."""
    whole: set[str] = set()
    patterns: set[str] = set()
    for path in Path(scene.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)):
                    whole.add(text)
                case ast.JoinedStr(values=[ast.Constant(value=str(first)), *_]) if first.strip("_"):
                    patterns.add("".join(map(_pattern, node.values)))
    return whole, patterns


def _pattern(part: ast.expr) -> str:
    return re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*"
