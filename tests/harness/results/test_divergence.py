"""The first divergence of two conversations."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from lhkit.harness.compare import compare
from lhkit.harness.pairs import Divergence, first_divergence
from lhkit.harness.record import Judgement, ModelCallRecord, SampleRecord, Verdict
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.terminal import comparison_view
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from tests.harness.build import FAIL, PASS, model_call, sample, turn_of

Turn = tuple[ModelCallRecord, ...]
CALL = '{"name": "search_protocols", "parameters": {"query": "'


def response(text: str, *ids: int) -> ModelCallRecord:
    return model_call(raw_text=text, token_ids=ids)


def conversation(*turns: Turn, verdict: Verdict = PASS) -> SampleRecord:
    return sample("s", verdict, 0, *(turn_of(*responses) for responses in turns))


SAME = (response("same", 1, 2),)


@pytest.mark.parametrize(
    ("a", "b", "turn", "message", "token", "quotes"),
    [
        (
            (SAME, (response("one", 1), response("ab", 5, 6))),
            (SAME, (response("one", 1), response("ac", 5, 7))),
            1,
            1,
            1,
            ("ab", "ac"),
        ),
        ((SAME,), ((response("same!", 1, 2, 3),),), 0, 0, 2, ("same", "same!")),
        (((response("one"),),), (SAME,), 0, 0, None, ("one", "same")),
        (((response("x", 1, 9),),), ((response("x", 1, 8),),), 0, 0, 1, ("#9", "#8")),
        ((SAME,), ((*SAME, response("more", 3)),), 0, 1, None, ("", "more")),
        ((SAME,), (SAME, SAME), 1, 0, None, ("", "same")),
        (((response("a\nb"),),), ((response("a b"),),), 0, 0, None, ("a\\nb", "a b")),
    ],
)
def test_divergence_is_the_first_differing_token_or_character(
    a: tuple[Turn, ...],
    b: tuple[Turn, ...],
    turn: int,
    message: int,
    token: int | None,
    quotes: tuple[str, str],
) -> None:
    divergence = first_divergence(conversation(*a), conversation(*b))
    assert divergence == Divergence(
        turn=turn, message=message, token=token, a=quotes[0], b=quotes[1]
    )


def test_divergence_of_equal_texts_is_none() -> None:
    assert first_divergence(conversation(SAME, SAME), conversation(SAME, SAME)) is None


def test_divergence_quotes_text_around_the_place() -> None:
    texts = [f"{CALL}{query}{' and so on' * 20}" for query in ("coffee", "tea")]
    a, b = (conversation((response(text),)) for text in texts)
    divergence = first_divergence(a, b)
    assert divergence is not None
    assert divergence.a == '…rs": {"query": "coffee and so on and so on and s…'
    assert divergence.b == '…rs": {"query": "tea and so on and so on and so o…'


@pytest.mark.parametrize(
    ("ids", "words"), [((1, 2), "message 1, token 2"), ((), "message 1")], ids=["ids", "text"]
)
def test_comparison_view_shows_the_first_divergence(ids: tuple[int, ...], words: str) -> None:
    a = conversation((response(f"{CALL}coffee", *ids),))
    b = conversation((response(f"{CALL}tea", *(each * 3 - 2 for each in ids)),))
    failed = replace(b, judgement=Judgement(verdict=FAIL))
    old, new = (Run(records=(each,), name=n) for n, each in (("old", a), ("new", failed)))
    console = Console(file=StringIO(), width=100)
    console.print(comparison_view(compare(old, new), load_catalog("en")), soft_wrap=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    where = f"first divergence: turn 1, {words}"
    assert f'    {where}\n      old · …rs": {{"query": "coffee\n      new · …' in text
    text = markdown(new, load_catalog("en"), name="new", baseline=old)
    assert f"  - `s` {where}: `…" in text
