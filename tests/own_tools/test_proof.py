"""Own tools, proven: phrases that play, data apart from every scenario, scores of what was run."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from evals.own_tools import proof
from evals.own_tools.proof import (
    OWN,
    SCENARIOS,
    Own,
    Training,
    chart,
    keep,
    prove,
    read_trainings,
    sentences,
    table,
    thinned,
)
from lhkit.commands.tune import dev_path, make_data
from lhkit.commands.tune_options import DataOptions, RunOptions
from lhkit.errors import TuningError
from lhkit.harness.scenario import load_scenarios, read_yaml
from lhkit.settings import Settings
from lhkit.tuning.apart import near
from lhkit.tuning.data import read_sequences
from lhkit.tuning.phrases.file import read_phrases
from lhkit.tuning.recipe import AdapterShape, TuneSettings
from lhkit.tuning.scores import Score, add_score

DRAWN = 300
"""Of the conversations that `make own-tools` draws, the first ones."""


def said(text: str) -> list[str]:
    """Return what the user says in a text that is learnt from."""
    turns = [turn.partition("<end_of_turn>")[0] for turn in text.split("<start_of_turn>user\n")[1:]]
    return [turn.rpartition("\n")[2] for turn in turns if not turn.startswith("Result of ")]


@pytest.mark.anyio
@pytest.mark.timeout(1_200)  # hundreds of conversations: minutes on a busy machine
@pytest.mark.parametrize("name", OWN)
async def test_phrases_play_with_their_tools_and_nothing_is_near_any_scenario(
    name: str, tmp_path: Path
) -> None:
    own, settings = OWN[name], Settings(locale="en")
    options = DataOptions(
        out=tmp_path / "own.jsonl",
        count=DRAWN,
        seed=own.seed,
        toolset=own.toolset,
        phrases=own.phrases,
        apart=SCENARIOS,
    )
    await make_data(options, settings, progress=False)
    texts = [*read_sequences(options.out), *read_sequences(dev_path(options.out))]
    assert len(texts) > 0.9 * DRAWN
    assert {each.group for each in texts} == {"ko", "en"}
    lines = {line for each in texts for line in said(each.text)}
    assert len(lines) > DRAWN / 2
    scenarios = load_scenarios(SCENARIOS)
    scored = [turn.user for each in scenarios for turn in each.turns]
    assert len(scored) > 400
    assert [line for line in lines if next(near(line, scored), None)] == []


@pytest.mark.parametrize("name", OWN)
def test_thinned_phrases_hold_about_as_many_sentences_of_every_kind(
    name: str, tmp_path: Path
) -> None:
    text = OWN[name].phrases.read_text(encoding="utf-8")
    whole = read_yaml(text).value
    half = sentences(whole) // 2
    (file := tmp_path / "few.yaml").write_text(thinned(text, half, seed=1), encoding="utf-8")
    few, everything = read_phrases(file), read_phrases(OWN[name].phrases).phrases
    assert 0.8 * half < sentences(few.document.value) < 1.2 * half
    assert thinned(text, half, seed=1) == file.read_text(encoding="utf-8") != thinned(text, half, 2)
    for locale, phrases in few.phrases.locales.items():
        assert phrases.small_talk
        assert phrases.follow_ups
        for tool, sayings in phrases.tools.items():
            said = whole["locales"][locale]["tools"][tool]["say"]
            assert bool(sayings.say) == bool(said)
            assert sayings.values == everything.locales[locale].tools[tool].values


@pytest.mark.parametrize("more", [0, 1, 10**6])
def test_as_many_sentences_as_there_are_or_more_leave_the_file_as_it_is(more: int) -> None:
    text = OWN["diary"].phrases.read_text(encoding="utf-8")
    assert thinned(text, sentences(read_yaml(text).value) + more, seed=1) == text


def test_what_is_left_of_the_sentences_stands_in_its_order() -> None:
    text = OWN["diary"].phrases.read_text(encoding="utf-8")
    whole, few = read_yaml(text).value, json.loads(thinned(text, 200, seed=1))
    for locale, told in few["locales"].items():
        for tool, sayings in told["tools"].items():
            said = whole["locales"][locale]["tools"][tool]["say"]
            assert sayings["say"] == [each for each in said if each in sayings["say"]]


def scored(step: int, passed: int) -> Score:
    return Score(
        step=step,
        seconds=60 * step,
        right_calls=30,
        counted_calls=40,
        passed=passed,
        valid=40,
        asked_sha256="",
        adapter_sha256="",
        served_as="Q8_0, llama.cpp",
    )


def training(
    count: int, *, minutes: float = 15, passed: int = 12, phrases: str = "1a2b3c4d"
) -> Training:
    return Training(
        phrases=phrases,
        sentences=count,
        rank=32,
        minutes=minutes,
        start="",
        machine={"cores": 2},
        scores=(scored(0, 1), scored(9, passed)),
    )


def test_figures_keep_a_row_for_each_training_and_the_newest_of_two_alike(tmp_path: Path) -> None:
    figures = tmp_path / "pantry.json"
    for each in (training(100), training(900, minutes=60), training(900), training(100, passed=8)):
        kept = keep(figures, each)
    assert [(each.sentences, each.minutes) for each in kept] == [(900, 60), (900, 15), (100, 15)]
    assert kept == read_trainings(figures)
    assert kept[-1].scores[-1].passed == 8
    assert table(kept[-1:]).splitlines()[2:] == [
        "| 100 sentences of 1a2b3c4d, rank 32 | 0 | 0 | 30/40 75% [60–86] | 1/40 2% [0–13] |",
        "|  | 9 | 9 | 30/40 75% [60–86] | 8/40 20% [10–35] |",
    ]


def test_the_picture_has_a_panel_over_sentences_once_trainings_differ_in_nothing_else(
    tmp_path: Path,
) -> None:
    figures = tmp_path / "pantry.json"
    picture = figures.with_suffix(".svg")
    keep(figures, training(900, minutes=60))
    keep(figures, training(100))
    keep(figures, training(300, phrases="5e6f7a8b"))
    assert "minutes of training" in picture.read_text(encoding="utf-8")
    assert "sentences in the phrase file" not in picture.read_text(encoding="utf-8")
    keep(figures, training(300))
    assert "sentences in the phrase file, 15 minutes" in picture.read_text(encoding="utf-8")
    for count in (100, 300, 500, 700):
        keep(figures, replace(training(count, minutes=0), steps=170))
    assert "sentences in the phrase file, 170 steps" in picture.read_text(encoding="utf-8")
    keep(figures, training(400, minutes=90))
    assert "900 sentences" in picture.read_text(encoding="utf-8"), "of most sentences, not longest"


def test_the_axes_of_the_picture_begin_at_nothing() -> None:
    drawn = chart([training(900), training(300)], "1a2b3c4d").to_dict()
    for panel in drawn["hconcat"]:
        assert panel["encoding"]["x"]["scale"]["zero"]
        assert panel["encoding"]["y"]["scale"]["domain"] == [0, 100]


def test_the_picture_is_of_the_phrase_file_that_was_trained_with_last(tmp_path: Path) -> None:
    figures = tmp_path / "pantry.json"
    keep(figures, training(900, phrases="5e6f7a8b", minutes=60))
    keep(figures, training(700))
    drawn = figures.with_suffix(".svg").read_text(encoding="utf-8")
    assert "700 sentences of 1a2b3c4d" in drawn
    assert "900 sentences" not in drawn


def test_of_trainings_by_steps_the_picture_is_of_the_longest(tmp_path: Path) -> None:
    figures = tmp_path / "pantry.json"
    for steps, weight in ((600, 4), (170, 2)):
        kept = keep(figures, replace(training(900, minutes=0), steps=steps, decisive_weight=weight))
    assert [each.steps for each in kept] == [600, 170]
    assert "decisive weight 4" in figures.with_suffix(".svg").read_text(encoding="utf-8")


def test_of_two_trainings_as_long_the_picture_is_of_the_newer(tmp_path: Path) -> None:
    figures = tmp_path / "pantry.json"
    for weight in (4, 3, 2):
        keep(figures, replace(training(900), decisive_weight=weight))
        drawn = figures.with_suffix(".svg").read_text(encoding="utf-8")
        assert f"decisive weight {weight}" in drawn


CARD = {"cores": 16, "device": "H100"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the training was asked for, and what it left behind."""

    options: list[RunOptions] = field(default_factory=list)

    async def tune_own(self, options: RunOptions, _settings: Settings) -> int:
        self.options.append(options)
        (made := options.into / "training" / "adapter").mkdir(parents=True)
        (made / "manifest.json").write_text(json.dumps({"machine": CARD}), encoding="utf-8")
        add_score(made.parent, scored(9, 12))
        return 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Train nothing, and keep what was asked for."""
    asked = Asked()
    monkeypatch.setattr(proof, "tune_own", asked.tune_own)
    return asked


def own(folder: Path) -> Own:
    """Return the diary, its figures in a folder of the test's own."""
    (folder / "diary.yaml").write_bytes(OWN["diary"].phrases.read_bytes())
    return replace(OWN["diary"], folder=folder)


def options(own: Own, folder: Path, start: Path | None = None) -> RunOptions:
    tuning = TuneSettings(minutes=15, adapter=AdapterShape(rank=8, alpha=16))
    return RunOptions(
        toolset=own.toolset,
        phrases=own.phrases,
        into=folder / "runs",
        tuning=tuning,
        start=start,
    )


@pytest.mark.anyio
async def test_figures_say_of_which_phrases_and_which_adapter_they_are(
    asked: Asked, tmp_path: Path
) -> None:
    here = own(tmp_path)
    starts = [tmp_path / name / "adapter" for name in ("one", "two")]
    for start in starts:
        start.mkdir(parents=True)
        (start / "adapter_model.safetensors").write_text(start.parent.name, encoding="utf-8")
    for start in (None, *starts):
        assert await prove(here, options(here, tmp_path, start), None, Settings()) == 0
    assert await prove(here, options(here, tmp_path), 200, Settings()) == 0
    shorter = replace(options(here, tmp_path), openings=0.5, made_up_names=0.25)
    heavier = replace(shorter.recipe, decisive_weight=4)
    for asked_for in (shorter, replace(shorter, tuning=heavier)):
        assert await prove(here, asked_for, None, Settings()) == 0
    kept = read_trainings(here.figures)
    assert len(kept) == 6
    (told,) = (each.told for each in kept if each.decisive_weight > 1)
    assert told.endswith(
        f" of {kept[0].phrases}, rank 8, decisive weight 4, openings 0.5, made-up names 0.25"
    )
    assert len({each.start for each in kept}) == 3
    assert {each.phrases for each in kept} == {kept[0].phrases}
    assert min(each.sentences for each in kept) < 400
    folders = [each.into for each in asked.options]
    assert len({*folders}) == 6
    written = [(each / "phrases.yaml").read_bytes() for each in folders]
    assert written[:3] == [here.phrases.read_bytes()] * 3 != [written[3]] * 3
    assert {each.rank for each in kept} == {8}


@pytest.mark.anyio
@pytest.mark.usefixtures("asked")
async def test_figures_tell_steps_on_a_card_from_minutes_and_name_what_trained(
    tmp_path: Path,
) -> None:
    here = own(tmp_path)
    by_minutes = options(here, tmp_path)
    by_steps = replace(by_minutes.recipe, minutes=None, steps=600)
    for recipe in (by_minutes.recipe, by_steps, replace(by_steps, device="cuda")):
        assert await prove(here, replace(by_minutes, tuning=recipe), None, Settings()) == 0
    timed, *stepped = read_trainings(here.figures)
    assert [(each.minutes, each.steps, each.device) for each in (timed, *stepped)] == [
        (15, 0, "cpu"),
        (0, 600, "cpu"),
        (0, 600, "cuda"),
    ]
    assert {each.told for each in (timed, *stepped)} == {timed.told, f"{timed.told}, on a card"}
    assert "-600-steps-rank-8" in stepped[0].folder
    assert len({each.folder for each in (timed, *stepped)}) == 3
    assert {each.machine["device"] for each in stepped} == {"H100"}


@pytest.mark.parametrize(
    ("asked_for", "expected"),
    [
        ([], (60, 10**6, "cpu")),
        (["--minutes", "5"], (5, 10**6, "cpu")),
        (["--steps", "600", "--device", "cuda"], (None, 600, "cuda")),
    ],
)
def test_a_training_is_over_after_minutes_or_after_steps(
    monkeypatch: pytest.MonkeyPatch, asked_for: list[str], expected: tuple[object, ...]
) -> None:
    found: list[TuneSettings] = []

    async def no_training(
        _own: Own, options: RunOptions, _most: int | None, _settings: Settings
    ) -> int:
        found.append(options.recipe)
        return 0

    monkeypatch.setattr(proof, "prove", no_training)
    app = typer.Typer()
    app.command()(proof.main)
    assert CliRunner().invoke(app, ["pantry", *asked_for]).exit_code == 0
    assert [(each.minutes, each.steps, each.device) for each in found] == [expected]
    refused = CliRunner().invoke(app, ["pantry", "--steps", "600", "--minutes", "5"])
    assert refused.exit_code == 2
    assert "--steps and --minutes: give one of them" in refused.output
    assert len(found) == 1


@pytest.mark.anyio
async def test_figures_of_another_form_are_named_before_anything_is_trained(
    asked: Asked, tmp_path: Path
) -> None:
    here = own(tmp_path)
    here.figures.write_text('{"scores": []}', encoding="utf-8")
    with pytest.raises(TuningError, match=r"diary\.json cannot be read .*: move it away"):
        await prove(here, options(here, tmp_path), None, Settings())
    assert asked.options == []


def test_the_figures_that_are_kept_can_be_read() -> None:
    kept = {name: read_trainings(own.figures) for name, own in OWN.items() if own.figures.exists()}
    assert "pantry" in kept
    assert all(each.scores for trainings in kept.values() for each in trainings)
