"""A training that is scored on scenarios while it goes on: when, on what, and by which model."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers

from lhkit.commands import tune
from lhkit.commands.options import EvalOptions
from lhkit.commands.tune import tune_own
from lhkit.commands.tune_options import DataOptions, RunOptions
from lhkit.errors import (
    MissingPackageError,
    ModelError,
    ScenarioError,
    ServerFailedError,
    ServerStartError,
    SetupError,
    TuningError,
)
from lhkit.harness.results import Run
from lhkit.harness.run import replay
from lhkit.models import light
from lhkit.models.base import ChatModel
from lhkit.models.light import write_light
from lhkit.models.scripted import Reply, Script, ScriptedModel, call, say
from lhkit.precision import chosen
from lhkit.settings import Settings
from lhkit.toolset import load
from lhkit.tuning import adapter
from lhkit.tuning.adapter import merge
from lhkit.tuning.data import opening, read_sequences
from lhkit.tuning.recipe import AdapterShape, TuneSettings
from lhkit.tuning.scores import SCORES, Score, add_score, all_scores, share_words, shown_scores
from lhkit.tuning.scoring import EvalSet, Scorer, eval_set
from lhkit.tuning.train import TrainingSurroundings, read_log, train
from tests.models.tiny_gemma import tiny_gemma as write_gemma
from tests.tuning.test_device import as_if_on_a_card
from tests.tuning.test_own_docs import blocks
from tests.tuning.test_training import material, settings, ticking

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

SCENARIOS = """
- id: add-it
  ac: AC-1
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns:
    - user: write down that I need stamps
      expect: {calls: [{tool: add_note, args: {text: stamps}}]}
- id: chat
  ac: AC-2
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: thank you so much}]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a folder with tools, the phrases that teach them, and scenarios."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.py").write_text(blocks("python")[0], encoding="utf-8")
    (tmp_path / "phrases.yaml").write_text(blocks("yaml")[0], encoding="utf-8")
    (tmp_path / "scenarios.yaml").write_text(SCENARIOS, encoding="utf-8")
    return tmp_path


@dataclass
class Playing:
    """Serves a script in the place of a model: it adds the note, and says something."""

    scored: list[Score] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    """For each that was served: the steps that a checkpoint held by then."""
    faults: int = 0
    is_dying: bool = False
    """Whether the server dies behind the first conversation."""

    @asynccontextmanager
    async def serve(
        self, _base: Path, adapter: Path | None, place: Path, _settings: Settings
    ) -> AsyncIterator[ChatModel]:
        self.served.append("base" if adapter is None else adapter.name)
        self.after.append(len(read_log(place.parent.parent)))
        if self.faults:
            self.faults -= 1
            raise ServerStartError("it did not start")
        gone = Reply(error=ServerFailedError("it is gone"))
        yield ScriptedModel(self._gone_in_small_talk(gone) if self.is_dying else _talk())

    @staticmethod
    def _gone_in_small_talk(gone: Reply) -> Script:
        replies = iter(_talk()[:2])
        return lambda request: gone if "thank you" in str(request.messages) else next(replies)

    def scorer(self, asked: EvalSet, folder: Path, start: Path | None = None) -> Scorer:
        return Scorer(
            asked=asked,
            base=folder / "base",
            start=start,
            folder=folder,
            settings=Settings(locale="en"),
            tell=self.scored.append,
            serve=self.serve,
        )


def _talk() -> list[Reply]:
    return [call("add_note", text="stamps"), say("Noted."), say("Bye.")]


def scored_training(base: Path, folder: Path, scorer: Scorer, *, stop_after: int = 99) -> None:
    """Train 12 steps of a second each, an adapter kept every four; score as a command does."""
    stops = iter([False] * (stop_after - 1) + [True])
    around = TrainingSurroundings(
        keep_every_minutes=4 / 60,
        pause=lambda: asyncio.run(scorer.score_due()),  # noqa: TID251 - a thread of its own
    )
    train(
        material(base),
        settings(),
        folder,
        clock=ticking(),
        progress=False,
        stop=lambda: next(stops, False),
        surroundings=around,
    )


async def test_it_is_scored_at_each_kept_adapter_at_the_end_and_last_the_bare_base(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(), own / "training"
    scorer = playing.scorer(eval_set([own / "scenarios.yaml"], load("notes.py:Notebook")), folder)
    await asyncio.to_thread(scored_training, tiny_gemma, folder, scorer)
    assert [each.step for each in shown_scores(folder)] == [4, 7, 11]
    await scorer.score_due()
    kept = ["step-000004", "step-000007", "step-000011"]
    assert playing.served == ["base", *kept, "adapter", "base"]  # at first only to see that it is
    assert playing.after == [0, 4, 7, 11, 12, 12]
    assert [each.step for each in playing.scored] == [4, 7, 11, 12, 0]
    assert [each.step for each in shown_scores(folder)] == [0, 4, 7, 11, 12]
    first, *_, last = shown_scores(folder)
    assert (first.right_calls, first.counted_calls, first.passed, first.valid) == (1, 1, 2, 2)
    assert first.adapter_sha256 == ""
    assert (first.seconds, last.seconds) == (0, 12)
    picture = (folder / "curves.svg").read_text(encoding="utf-8")
    assert "scenarios passed" in picture
    assert last.served_as in picture
    assert Run.load(folder / "scores" / "step-000007").summary().total.passed == 2


async def test_a_message_is_as_long_as_lhkit_eval_lets_it_be(own: Path) -> None:
    asked = eval_set([own / "scenarios.yaml"], load("notes.py:Notebook"))
    run = await replay(asked.scenarios, ScriptedModel(_talk()), toolset=asked.toolset)
    told = run.manifest["sampling"]
    assert [each["max_tokens"] for each in told] == [EvalOptions().max_tokens]


def test_time_that_scoring_takes_changes_nothing_in_a_training(own: Path, tiny_gemma: Path) -> None:
    paused: list[int] = []
    for name, ticks in (("scored", 1_000), ("plain", 0)):
        clock = ticking()

        def pause(clock: Callable[[], float] = clock, ticks: int = ticks) -> None:
            paused.append(sum(1 for _ in range(ticks) if clock() >= 0))

        around = TrainingSurroundings(keep_every_minutes=4 / 60, pause=pause)
        train(
            material(tiny_gemma),
            settings(),
            own / name,
            clock=clock,
            progress=False,
            surroundings=around,
        )
    logs = [(own / each / "log.jsonl").read_text() for each in ("scored", "plain")]
    assert logs[0] == logs[1]
    assert paused == [1_000] * 4 + [0] * 4


async def test_a_training_that_was_stopped_scores_no_step_twice(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(), own / "training"
    scorer = playing.scorer(eval_set([own / "scenarios.yaml"], load("notes.py:Notebook")), folder)
    for stop_after in (6, 99):
        await asyncio.to_thread(scored_training, tiny_gemma, folder, scorer, stop_after=stop_after)
    for _ in range(2):
        await scorer.score_due()
    steps = [each.step for each in playing.scored]
    assert sorted(steps) == sorted({*steps}) == [each.step for each in shown_scores(folder)]
    assert {0, 4, 12} <= {*steps}


async def test_what_cannot_be_served_is_known_before_the_first_step(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(), own / "training"
    scorer = playing.scorer(eval_set([own / "scenarios.yaml"], load("notes.py:Notebook")), folder)
    playing.faults = 1
    with pytest.raises(ServerStartError):
        await asyncio.to_thread(scored_training, tiny_gemma, folder, scorer)
    assert read_log(folder) == []


async def test_a_training_that_is_begun_serves_nothing_that_it_does_not_score(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(), own / "training"
    asked = eval_set([own / "scenarios.yaml"], load("notes.py:Notebook"))
    scorer = playing.scorer(asked, folder)
    await asyncio.to_thread(scored_training, tiny_gemma, folder, scorer, stop_after=2)
    assert playing.served == ["base"]
    await asyncio.to_thread(scored_training, tiny_gemma, folder, scorer, stop_after=1)
    assert playing.served == ["base"]
    assert 1 <= len(read_log(folder)) < 4


async def test_what_could_not_be_scored_is_scored_the_next_time(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(), own / "training"
    asked = eval_set([own / "scenarios.yaml"], load("notes.py:Notebook"))
    train(material(tiny_gemma), settings(steps=2), folder, clock=ticking(), progress=False)
    scorer = playing.scorer(asked, folder)
    playing.faults = 1
    with pytest.raises(ServerStartError):
        await scorer.score_due()
    assert shown_scores(folder) == ()
    await scorer.score_due()
    assert [each.step for each in shown_scores(folder)] == [0, 2]


async def test_what_a_server_that_died_left_unanswered_makes_no_score_and_is_played_the_next_time(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(is_dying=True), own / "training"
    train(material(tiny_gemma), settings(steps=2), folder, clock=ticking(), progress=False)
    scorer = playing.scorer(eval_set([own / "scenarios.yaml"], load("notes.py:Notebook")), folder)
    with pytest.raises(ModelError, match="1 of the 2 scenarios of --eval got no answer"):
        await scorer.score_due()
    assert all_scores(folder) == ()
    playing.is_dying = False
    await scorer.score_due()
    assert {(each.step, each.valid) for each in shown_scores(folder)} == {(0, 2), (2, 2)}


async def test_scores_of_other_scenarios_or_tools_are_not_shown_beside_these(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(), own / "training"
    train(material(tiny_gemma), settings(steps=2), folder, clock=ticking(), progress=False)
    toolset = load("notes.py:Notebook")
    await playing.scorer(eval_set([own / "scenarios.yaml"], toolset), folder).score_due()
    changed = SCENARIOS.replace("thank you so much", "thanks")
    (own / "scenarios.yaml").write_text(changed, encoding="utf-8")
    again = eval_set([own / "scenarios.yaml"], toolset)
    await playing.scorer(again, folder).score_due()
    assert [each.step for each in all_scores(folder)] == [2, 0, 2, 0]
    assert {each.asked_sha256 for each in shown_scores(folder)} == {again.sha256}
    code = (own / "notes.py").read_text(encoding="utf-8")
    (own / "other.py").write_text(code.replace("Add a note;", "Write down;"), encoding="utf-8")
    other = eval_set([own / "scenarios.yaml"], load("other.py:Notebook"))
    assert other.sha256 != again.sha256
    assert eval_set([own / "scenarios.yaml"], toolset).sha256 == again.sha256
    add_score(folder, replace(all_scores(folder)[0], asked_sha256=other.sha256))
    assert [each.step for each in shown_scores(folder)] == [2]  # the base is not scored on these


async def test_the_adapter_it_went_on_from_is_what_it_began_from(
    own: Path, tiny_gemma: Path
) -> None:
    playing = Playing()
    asked = eval_set([own / "scenarios.yaml"], load("notes.py:Notebook"))
    train(material(tiny_gemma), settings(steps=2), own / "first", clock=ticking(), progress=False)
    start = own / "first" / "adapter"
    await playing.scorer(asked, own / "second", start).score_due()
    [score] = shown_scores(own / "second")
    assert (score.step, playing.served) == (0, ["adapter"])
    assert len(score.adapter_sha256) == 64


async def test_where_an_earlier_adapter_was_the_best_it_is_scored_as_the_step_that_it_is(
    own: Path, tiny_gemma: Path
) -> None:
    playing, folder = Playing(), own / "training"
    changes = {"steps": 30, "dev_every_steps": 2, "patience": 2, "learning_rate": 0.5}
    train(material(tiny_gemma), settings(**changes), folder, clock=ticking(), progress=False)
    told = json.loads((folder / "adapter" / "manifest.json").read_text(encoding="utf-8"))
    asked = eval_set([own / "scenarios.yaml"], load("notes.py:Notebook"))
    await playing.scorer(asked, folder).score_due()
    assert [each.step for each in shown_scores(folder)] == [0, told["kept_step"]]
    assert told["kept_step"] < told["steps_done"]
    assert playing.scored[0].seconds == told["kept_step"]  # a step takes a second


def test_scores_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / SCORES).write_text("{}\n", encoding="utf-8")
    with pytest.raises(TuningError, match=r"scores\.jsonl is broken .*: remove it to score anew"):
        all_scores(tmp_path)


def test_a_share_is_told_with_its_interval() -> None:
    assert share_words(30, 40) == "30/40 75% [60–86]"
    assert share_words(0, 0) == "–"


# `lhkit tune run --eval`: what is refused before anything is drawn, and the whole of it.


def options(own: Path, base: Path) -> RunOptions:
    """Return a run of some small steps."""
    return RunOptions(
        toolset="notes.py:Notebook",
        phrases=own / "phrases.yaml",
        into=own / "tuned",
        tuning=TuneSettings(
            steps=3,
            batch_tokens=4_000,
            max_sequence_tokens=8_000,
            checkpoint_every_steps=1,
            adapter=AdapterShape(rank=2, alpha=4),
        ),
        count=12,
        base=base,
        scored_on=(own / "scenarios.yaml",),
    )


@pytest.mark.parametrize(
    ("scenarios", "sentence"),
    [
        (SCENARIOS.replace("locale", "lokale"), r"scenarios\.yaml:4: add-it"),
        (SCENARIOS.replace("add_note", "add_nota"), r"add-it.*no tool 'add_nota'"),
    ],
)
async def test_wrong_scenarios_are_named_before_anything_is_drawn(
    own: Path, tiny_gemma: Path, scenarios: str, sentence: str
) -> None:
    (own / "scenarios.yaml").write_text(scenarios, encoding="utf-8")
    with pytest.raises(ScenarioError, match=sentence):
        await tune_own(options(own, tiny_gemma), Settings(locale="en"), progress=False)
    assert not (own / "tuned").exists()


def test_a_call_that_is_expected_to_name_no_tool_is_asked_for_as_lint_has_it(own: Path) -> None:
    lawless = SCENARIOS.replace("args: {text: stamps}", "result: unknown_tool")
    lawless = lawless.replace("tool: add_note", "tool: burn_notes")
    (own / "scenarios.yaml").write_text(lawless, encoding="utf-8")
    assert len(eval_set([own / "scenarios.yaml"], load("notes.py:Notebook")).scenarios) == 2


async def test_without_llama_cpp_it_is_said_what_to_install_before_anything_is_drawn(
    own: Path, tiny_gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'lhkit\[light\]'"):
        await tune_own(options(own, tiny_gemma), Settings(locale="en"), progress=False)
    assert not (own / "tuned").exists()


async def test_of_many_conversations_a_run_keeps_few_for_measuring(
    own: Path, tiny_gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[DataOptions] = []

    async def draw(data: DataOptions, *_: Any, **__: Any) -> int:
        drawn.append(data)
        raise TuningError("that is enough")

    monkeypatch.setattr(tune, "make_data", draw)
    asked = replace(options(own, tiny_gemma), count=6_000, scored_on=())
    with pytest.raises(TuningError, match="that is enough"):
        await tune_own(asked, Settings(locale="en"), progress=False)
    assert [each.dev_share * each.count for each in drawn] == [60]


@pytest.fixture(scope="module")
def whole_gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Gemma that both trains and is served: letters, and bytes for all else."""
    folder = tmp_path_factory.mktemp("whole-gemma")
    write_gemma(folder)
    told = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = told["model"]["vocab"]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>")  # noqa: S106 - a token's name
    )
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.add_special_tokens([each["content"] for each in told["added_tokens"]])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


async def test_a_base_with_its_adapter_is_written_as_if_it_had_been_merged_first(
    whole_gemma: Path, tmp_path: Path
) -> None:
    import torch

    model = adapter.with_adapter(adapter.load_model(whole_gemma), AdapterShape(), seed=1)
    with torch.no_grad():
        for each in adapter.trainable(model):
            each.normal_(std=0.05)
    adapter.save_adapter(model, tmp_path / "adapter", base_name=whole_gemma.name)
    merge(whole_gemma, tmp_path / "adapter", tmp_path / "merged")
    await write_light(whole_gemma, tmp_path / "ours.gguf", tmp_path / "adapter")
    await write_light(tmp_path / "merged", tmp_path / "theirs.gguf")
    await write_light(whole_gemma, tmp_path / "bare.gguf")
    ours, theirs, bare = (
        {each.name: each.data for each in gguf.GGUFReader(tmp_path / f"{name}.gguf").tensors}
        for name in ("ours", "theirs", "bare")
    )
    assert ours.keys() == theirs.keys()
    apart = sum(int((ours[name] != theirs[name]).sum()) for name in ours)
    assert apart <= 20  # where a sum lies between two numbers its order decides
    changed = {name for name in ours if not np.array_equal(ours[name], bare[name])}
    assert len(changed) == 2 * len(adapter.LINEAR_LAYERS)


async def test_phrases_become_a_model_whose_scores_are_those_of_its_adapters(
    own: Path, whole_gemma: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = replace(options(own, whole_gemma), keep_every_minutes=1e-6, openings=1)
    here = Settings(locale="en", cache_dir=own / "cache")
    assert await tune_own(asked, here, progress=False) == 0
    assert all(each == opening(each) for each in read_sequences(asked.data))
    folder = own / "tuned" / "training"
    scores = shown_scores(folder)
    assert [each.step for each in scores] == [0, 1, 2, 3]  # the third is the end
    assert {each.valid for each in scores} == {2}
    assert all(each.served_as.startswith("Q8_0, llama.cpp ") for each in scores)
    printed = " ".join(capsys.readouterr().out.split())
    assert "After 3 steps, " in printed
    assert f"played as {scores[-1].served_as}." in printed
    assert not list((folder / "scores").glob("*.gguf"))
    runs = [Run.load(folder / "scores" / f"step-{step:06}") for step in range(4)]
    weights = {run.manifest["models"][0]["weights_sha256"] for run in runs}
    assert len(weights) == 4
    before = (folder / SCORES).read_bytes()
    assert await tune_own(asked, here, progress=False) == 0
    assert (folder / SCORES).read_bytes() == before
    assert "After" not in capsys.readouterr().out


async def test_once_there_is_something_to_lose_a_fault_is_told_and_the_training_goes_on(
    own: Path, tiny_gemma: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = replace(options(own, tiny_gemma), keep_every_minutes=1e-6)
    seen: list[int] = []

    async def failing(scorer: Scorer) -> None:
        seen.append(len(read_log(scorer.folder)))
        if seen[-1]:
            raise TuningError("there is no room")

    monkeypatch.setattr(Scorer, "score_due", failing)
    with pytest.raises(TuningError, match="no room"):  # of what is scored when all is done
        await tune_own(asked, Settings(locale="en"), progress=False)
    assert seen == [0, 1, 2, 3, 3]
    assert capsys.readouterr().err.count("no room") == 3
    assert (own / "tuned" / "model" / "model.safetensors").exists()


async def test_who_interrupts_while_it_is_scored_ends_that_and_the_same_command_goes_on(
    own: Path, whole_gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, here = options(own, whole_gemma), Settings(locale="en", cache_dir=own / "cache")
    is_playing, is_ended = asyncio.Event(), asyncio.Event()

    async def endless(_scorer: Scorer) -> None:
        is_playing.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_ended.set()

    with monkeypatch.context() as patched:
        patched.setattr(Scorer, "score_due", endless)
        work = asyncio.create_task(tune_own(asked, here, progress=False))
        begun = asyncio.create_task(is_playing.wait())
        await asyncio.wait({work, begun}, return_when=asyncio.FIRST_COMPLETED)
        assert not work.done()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert is_ended.is_set()
    assert await tune_own(asked, here, progress=False) == 0
    assert [each.step for each in shown_scores(own / "tuned" / "training")] == [0, 3]


async def test_what_was_trained_on_a_card_is_merged_and_scored_without_one(
    own: Path, whole_gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    asked, here = options(own, whole_gemma), Settings(locale="en", cache_dir=own / "cache")
    trained = replace(asked.recipe, dtype=chosen().dtype)

    async def nothing(_scorer: Scorer) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(Scorer, "score_due", nothing)
        await tune_own(replace(asked, tuning=trained), here, progress=False)
    as_if_on_a_card(own / "tuned" / "training")
    shutil.rmtree(own / "tuned" / "model")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    on_a_card = replace(asked, tuning=replace(trained, device="cuda"))
    assert await tune_own(on_a_card, here, progress=False) == 0
    assert [each.step for each in shown_scores(own / "tuned" / "training")] == [0, 3]
    assert (own / "tuned" / "model" / "model.safetensors").exists()
    (own / "tuned" / "training" / "log.jsonl").unlink()  # not whole any more
    with pytest.raises(SetupError, match="no graphics card"):
        await tune_own(on_a_card, here, progress=False)
