"""Judges: what is asked, what is stored, what is not asked twice, and what an answer counts as."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit import Run, ScriptedModel, add_scores, gold_model, judge, load_scenarios, replay
from lhkit.base.errors import UsageError
from lhkit.base.locales import load_catalog
from lhkit.cli.agreement import AgreementOptions, agreement
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import ModelIdentity, Sampling
from lhkit.harness.records.judge_labels import new_labels, write_labels
from lhkit.harness.results.compare import compare
from lhkit.harness.views.scores import figure_lines
from lhkit.harness.views.tables import comparison_table
from lhkit.models.base import ModelRequest
from lhkit.models.client.request import request_body
from lhkit.models.recorded.scripted import Reply, say
from lhkit.settings import Settings
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.longer]

ROOT = Path(__file__).parents[3]
DEV = ROOT / "datasets" / "ac" / "dev"
SCENARIOS = load_scenarios([DEV], limit=32)


async def old_run(folder: Path | None = None, limit: int = 12) -> Run:
    return await replay(SCENARIOS, gold_model, limit=limit, run_dir=folder, progress=False)


def answering(answer: Callable[..., str]) -> ScriptedModel:
    def script(request: ModelRequest) -> Reply:
        message = request.messages[-1]
        assert isinstance(message, UserMessage)
        return say(answer(message.text))

    return ScriptedModel(script, name="critic")


async def test_judge_asks_once_and_stores_prompt_and_answer(tmp_path: Path) -> None:
    await old_run(tmp_path / "run")
    model = answering(lambda _prompt: " **Yes**.\n")
    run = await add_scores(tmp_path / "run", [judge(model, "Is it polite?", name="polite")])
    (figure,) = run.summary().scores
    assert (figure.name, figure.value, figure.n, figure.is_judge) == ("polite", 1.0, 12, True)
    asked = len(model.requests)
    assert 0 < asked <= 12
    assert {request.sampling for request in model.requests} == {Sampling(max_tokens=256)}
    orders = {request.choices for request in model.requests}
    assert orders == {("yes", "no"), ("no", "yes")}
    stored = Run.load(tmp_path / "run").sample(run.samples[0].scenario)
    (result,) = stored.scores
    assert result.judge is not None
    assert result.judge.answer == " **Yes**.\n"
    assert "Is it polite?" in result.judge.prompt
    assert stored.user_messages[0] in result.judge.prompt
    # another score with the same question: no new question, in this process or another
    again = await add_scores(tmp_path / "run", [judge(model, "Is it polite?", name="courteous")])
    assert len(model.requests) == asked
    assert [figure.value for figure in again.summary().scores] == [1.0, 1.0]
    await add_scores(tmp_path / "run", [judge(model, "Is it short?", name="short")])
    assert len(model.requests) == 2 * asked


async def test_judge_answer_that_is_no_choice_is_a_failure_of_the_score() -> None:
    run = await old_run()
    answers = iter(["yes", "maybe", "NO", "예", "", "yes, no", *["no"] * 6])
    model = answering(lambda _prompt: next(answers))
    scored = await add_scores(run, [judge(model, "Polite?", name="polite", concurrency=1)])
    (figure,) = scored.summary().scores
    assert (figure.failed, figure.n) == (4, 8)
    assert "the answer 'maybe' is none of the choices: yes, no" in figure.error
    failed = next(result for result in scored.score_records if result.error)
    assert failed.judge is not None
    assert failed.judge.answer == "maybe"
    assert scored.summary().total == run.summary().total


@check_rows(
    ("choices", "answer", "value"),
    [
        (("yes", "no"), "no", False),
        (("예", "아니요"), "예.", True),
        (("good", "fair", "bad"), "fair", False),
        ({"good": True, "fair": True, "bad": False}, "fair", True),
        ({"yes": True, "no": False, "not asked": None}, "Not asked", None),
    ],
)
async def test_judge_choices_count_as_documented(
    choices: Any, answer: str, value: bool | None
) -> None:
    run = await old_run(limit=1)
    scored = await add_scores(run, [judge(answering(lambda _prompt: answer), "?", choices)])
    assert [v.value for r in scored.score_records for v in r.values] == (
        [] if value is None else [value]
    )


@pytest.mark.parametrize("is_async", [False, True])
async def test_judge_makes_and_closes_its_model_when_it_is_needed(is_async: bool) -> None:
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def aclose(self) -> None:
            closed.append("closed")

    made: list[Closing] = []

    def make() -> Closing:
        made.append(Closing(lambda _request: say("yes"), name="critic"))
        return made[-1]

    async def make_async() -> Closing:
        return make()

    run = await old_run(limit=3)
    polite = judge(make_async if is_async else make, "Polite?")
    assert not made
    await add_scores(run, [polite])
    assert (len(made), closed) == (1, ["closed"])


@check_rows(
    ("arguments", "message"),
    [
        ({"rubric": " "}, "rubric"),
        ({"choices": "yes"}, "choices"),
        ({"choices": ("yes",)}, "at least two"),
        ({"choices": ("yes", "Yes")}, "at least two"),
        ({"choices": ("yes", "")}, "not empty"),
        ({"choices": {"yes": 1, "no": 2}}, "True, False or None"),
        ({"name": "a b"}, "a b"),
        ({"fails": True}, "its error is not known"),
    ],
)
def test_judge_refuses_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        judge(ScriptedModel([]), **{"rubric": "Polite?", **arguments})


def test_request_is_constrained_to_choices_where_the_server_can() -> None:
    plain = ModelRequest(messages=(UserMessage(text="?"),))
    asked = replace(plain, choices=("yes", 'no "x"'))
    for server, dialect, fields in (
        ("vllm 0.32", "openai", {"structured_outputs": {"choice": ["yes", 'no "x"']}}),
        ("vllm 0.32", "gemma4", {"structured_outputs": {"choice": ["yes", 'no "x"']}}),
        ("llama.cpp b1", "openai", {"grammar": r'root ::= "yes" | "no \"x\""'}),
        ("ollama 0.9", "openai", {}),
    ):
        identity = ModelIdentity(model="m", server=server, dialect=dialect)
        before, after = request_body(plain, identity), request_body(asked, identity)
        assert after == {**before, **fields}


@pytest.mark.parametrize("locale", ["en", "ko"])
async def test_agreement_command_draws_labels_and_corrects(
    locale: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = Settings(locale=locale)
    folder, file = tmp_path / "run", tmp_path / "labels.csv"
    await old_run(folder, limit=20)
    polite = judge(answering(lambda _prompt: "yes"), "Polite?", name="polite")
    run = await add_scores(folder, [polite])
    table = "".join(figure_lines(run.summary().scores, load_catalog(locale)))
    assert ("unchecked judge" if locale == "en" else "확인하지 않은 평가 모델") in table
    with pytest.raises(UsageError, match="no judge 'rude'"):
        run.agreement("rude")

    draw = AgreementOptions(run=folder, score="polite", labels=file, draw=12)
    assert await agreement(draw, spoken) == 0
    text = file.read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 12
    assert {row["label"] for row in rows} == {""}
    with pytest.raises(UsageError, match="Give a new file"):
        await agreement(draw, spoken)
    words = ("no", "yes") if locale == "en" else ("아니요", "예")
    for number, row in enumerate(rows):
        row["label"] = words[number % 4 > 0]
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    capsys.readouterr()
    labelled = AgreementOptions(run=folder, score="polite", labels=file)
    assert await agreement(labelled, spoken) == 0
    shown = capsys.readouterr().out
    assert "3" in shown
    assert ("of 3 that the person calls no" if locale == "en" else "'아니요'라고 한 3개") in shown
    loaded = Run.load(folder)
    found = loaded.agreement("polite")
    assert (found.labels, found.false_yes.part, len(found.disputed)) == (12, 3, 3)
    table = "".join(figure_lines(loaded.summary().scores, load_catalog(locale)))
    assert ("corrected" if locale == "en" else "보정한 비율") in table
    by_hand = {row["sample"]: row["label"] == words[1] for row in rows}
    assert run.agreement("polite", by_hand) == found


async def test_comparison_says_that_a_judge_is_unchecked(tmp_path: Path) -> None:
    runs = []
    for name, answer in (("a", "yes"), ("b", "no")):
        await old_run(tmp_path / name, limit=6)
        critic = judge(answering(lambda _prompt, answer=answer: answer), "Polite?", name="polite")
        runs.append(await add_scores(tmp_path / name, [critic]))
    for number in range(3):
        notes = {}
        for locale in ("en", "ko"):
            table = comparison_table(compare(*runs), load_catalog(locale))
            notes[locale] = " ".join(table.notes)
        is_unchecked = number < 2
        assert ("unchecked judge: polite" in notes["en"]) == is_unchecked
        assert ("확인하지 않은 평가 모델: polite" in notes["ko"]) == is_unchecked
        assert ("not corrected ones: polite" in notes["en"]) == (not is_unchecked)
        if is_unchecked:  # labels for one run, then for both
            folder = tmp_path / "ab"[number]
            labels = new_labels("polite", {runs[number].samples[0].id: True}, runs[number].records)
            write_labels(folder, labels)
            runs[number] = Run.load(folder)


@check_rows(
    ("name", "text", "message"),
    [
        ("l.csv", "sample,label\nx,maybe\n", "neither yes nor no"),
        ("l.csv", "id,label\nx,yes\n", "no 'sample'"),
        ("l.jsonl", '{"sample": "x", "label": true}\n{"sample": "x", "label": false}\n', "two"),
        ("l.jsonl", "{", "not valid JSON"),
        ("l.jsonl", '{"sample": "x", "label": 1}\n', "no sample 'x'"),
    ],
)
async def test_agreement_refuses_invalid_labels(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    run = await add_scores(await old_run(limit=1), [judge(answering(lambda _: "yes"), "?")])
    with pytest.raises(UsageError, match=message):
        run.agreement("judge", tmp_path / name)


async def test_judge_is_a_check_once_its_error_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    model = answering(lambda _prompt: "yes")
    run = await add_scores(
        await old_run(folder, limit=32), [judge(model, "Polite?", name="polite")]
    )
    ids = [sample.id for sample in run.samples]
    write_labels(folder, new_labels("polite", dict.fromkeys(ids, True), run.records))
    with pytest.raises(UsageError, match="of both kinds"):
        judge(model, "Polite?", fails=True, measured=folder)
    labels = {name: number % 8 > 0 for number, name in enumerate(ids)}
    write_labels(folder, new_labels("polite", labels, run.records))
    check = judge(model, "Polite?", name="polite", fails=True, measured=folder)
    assert check.fails
    with pytest.raises(UsageError, match="no results of this judge"):
        judge(model, "Rude?", fails=True, measured=folder)
