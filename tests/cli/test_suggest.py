"""`lhkit chats suggest` in both languages: drafts, what is left out, and errors."""

import asyncio
from pathlib import Path

import pytest

from lhkit.confirm.decision import Reject
from lhkit.models.recorded.scripted import say
from tests.cli.conftest import Run
from tests.cli.test_outputs import foreign
from tests.harness.recorded_chats import PANTRY, Said, put, record

pytestmark = pytest.mark.longer

ASKS = {"en": ("put 2 tofu in the fridge", "tofu"), "ko": ("두부 2개 냉장실에 넣어 줘", "두부")}
REPLIES = {"en": "I added it.", "ko": "넣었어요."}


def make_chats(folder: Path, locale: str) -> None:
    ask, food = ASKS[locale]
    done = say(REPLIES[locale])
    for number, turn in enumerate(
        [
            Said(ask, [put(food, 12), done], [{"amount": 2}]),
            Said(ask, [put(food, 13), done], [{"amount": 2}]),
            Said(ask, [put(food, 2, "shelf"), say("…")], [Reject("!")]),
            Said(ask, [done]),
            Said(ask, [put(food), done], [True]),
        ]
    ):
        chat = record(folder, turn, locale=locale, number=number)
        asyncio.run(chat)  # noqa: TID251 - a command, which starts its own loop, follows


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"LHKIT_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("locale", "counts", "reason"),
    [
        ("en", "5 chats read: 3 new drafts in d.jsonl, 1 near-duplicate added", "12 → 2"),
        ("ko", "대화 5개를 읽음: d.jsonl에 새 초안 3개", "고쳤습니다"),
    ],
)
def test_suggest_prints_drafts_in_the_language_of_the_user(
    locale: str, counts: str, reason: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", locale)
    make_chats(Path("chats"), locale)
    code, out, err = run("chats", "suggest", "chats", "--into", "d.jsonl", "--toolset", PANTRY)
    assert (code, err) == (0, "")
    for text in (counts, reason, "chat-20260615-090000", 'DraftReview("d.jsonl")'):
        assert text in out
    assert {*foreign(out, locale)} <= {"amount", "DraftReview", "notebook"}
    code, again, _ = run("chats", "suggest", "chats", "--into", "d.jsonl", "--toolset", PANTRY)
    assert code == 0
    assert {"en": "0 new drafts", "ko": "새 초안 0개"}[locale] in again
    code, _, err = run("eval", "d.jsonl", "--toolset", PANTRY, "--model", "gold")
    assert code == 2
    assert {"en": "which are not run", "ko": "실행하지 않습니다"}[locale] in err
    assert [*foreign(err.replace("lhkit.notebook.DraftReview", ""), locale)] in ([], ["top"])


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_suggest_says_what_is_wrong_in_the_language_of_the_user(
    locale: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LHKIT_LOCALE", locale)
    make_chats(Path("chats"), locale)
    Path("other.jsonl").write_text("{}\n")
    Path("broken.jsonl").write_text('{"lhkit_drafts":1,"draft":{"id":5}}\n')
    base = ("chats", "suggest", "chats", "--toolset", PANTRY)
    for args, code in (
        (("chats", "suggest", "none", "--into", "d.jsonl", "--toolset", PANTRY), 2),
        (("chats", "suggest", "chats", "--into", "d.jsonl"), 2),  # life-helper's tools
        ((*base, "--into", "d.yaml"), 2),
        ((*base, "--into", "other.jsonl"), 2),
        ((*base, "--into", "broken.jsonl"), 3),
        (base, 2),
    ):
        found, out, err = run(*args)
        assert found == code, (args, err)
        assert out == ""
        names = {"PantryToolset", "jsonl", "into", "FILE", "draft", "DIR", "suggest"}
        words = {*foreign(err, locale)} - names
        assert locale == "en" or not words, (args, err)


def test_suggest_help_has_an_example(run: Run) -> None:
    code, out, _ = run("chats", "suggest", "--help")
    assert code == 0
    assert "--into" in out
    assert "lhkit chats suggest runs/chats --into drafts.jsonl" in out
