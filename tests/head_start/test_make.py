"""The data of a head start: conversations that play, apart from every scenario, in one file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.head_start.make import HeadStart, kept_domains, make, parts, played
from evals.own_tools.proof import SCENARIOS
from lhkit.commands.tune import dev_path
from lhkit.errors import UsageError
from lhkit.harness.scenario import load_scenarios
from lhkit.tools.validation import Accepted
from lhkit.toolset import registry_of
from lhkit.tuning.apart import near
from lhkit.tuning.data import TrainingSequence, read_sequences
from lhkit.tuning.phrases.generate import MisfitError, require_playable
from tests.own_tools.test_proof import said

FEW = HeadStart(toolsets=14, count=56, lessons=0, dev=0)
TINY = HeadStart(toolsets=5, count=20, lessons=0.2, dev=4, dev_domains=1)


def calls_in(sequence: TrainingSequence) -> list[tuple[str, dict[str, object]]]:
    answers = (
        sequence.text[begin:end].removesuffix("<end_of_turn>") for begin, end in sequence.answers
    )
    calls = [json.loads(each) for each in answers if each.startswith("{")]
    return [(each["name"], each["parameters"]) for each in calls]


@pytest.mark.anyio
async def test_conversations_play_with_valid_calls_in_both_languages() -> None:
    misfits: list[MisfitError] = []
    groups: set[str] = set()
    called = 0
    for part in parts(FEW, misfits):
        talk = part.talks[0]
        tools = {
            locale: registry_of(part.toolset, each.world, locale)
            for each in part.talks
            for locale in (each.locale,)
        }
        for sequence in await played(part):
            locale = sequence.group.rpartition(".")[2]
            assert sequence.group == f"{part.name}.{locale}"
            groups.add(sequence.group)
            for name, args in calls_in(sequence):
                assert isinstance(tools[locale].validator(name).check(args), Accepted), talk.name
                called += 1
    require_playable(misfits)
    assert called > FEW.count / 2
    assert {each.rpartition(".")[2] for each in groups} == {"ko", "en"}


@pytest.mark.anyio
async def test_a_group_begins_with_its_instructions_and_all_of_its_tools() -> None:
    part = next(parts(replace(FEW, toolsets=1, count=12, korean_share=0), []))
    texts = [each.text for each in await played(part)]
    names = registry_of(part.toolset, part.talks[0].world, "en")
    end = max(texts[0].index(f'"name":"{name}"') for name in names)
    assert {each[:end] for each in texts} == {texts[0][:end]}


@pytest.mark.anyio
async def test_no_line_is_nearly_one_of_any_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "train.jsonl"
    await make(replace(FEW, count=84, dev=14, openings=0), out, progress=False)
    texts = [*read_sequences(out), *read_sequences(dev_path(out))]
    assert len(texts) > 0.9 * 84
    lines = {line for each in texts for line in said(each.text)}
    assert len(lines) > len(texts)
    scored = [turn.user for each in load_scenarios(SCENARIOS) for turn in each.turns]
    assert len(scored) > 400
    assert [line for line in lines if next(near(line, scored), None)] == []
    assert "were nearly a scenario" in capsys.readouterr().out


@pytest.mark.anyio
async def test_what_is_nearly_said_in_a_scenario_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = replace(FEW, toolsets=2, count=6)
    talks = [talk for part in parts(drawn, []) for talk in part.talks]
    line = talks[0].lines[0].user
    scenario = {"id": "x", "ac": "x", "locale": "en", "turns": [{"user": line}]}
    (scenarios := tmp_path / "own.yaml").write_text(json.dumps([scenario]), encoding="utf-8")
    out = tmp_path / "train.jsonl"
    await make(drawn, out, apart=[scenarios], progress=False)
    told = [line for each in read_sequences(out) for line in said(each.text)]
    assert line not in told
    assert len(read_sequences(out)) < len(talks)
    assert not capsys.readouterr().out.splitlines()[-1].startswith("0 ")
    assert not dev_path(out).exists()  # an empty one would be refused by the training


@pytest.mark.anyio
async def test_the_same_seed_gives_the_same_file_and_dev_holds_other_domains(
    tmp_path: Path,
) -> None:
    files = [tmp_path / name for name in ("one.jsonl", "again.jsonl", "other.jsonl")]
    for file, seed in zip(files, (1, 1, 2), strict=True):
        await make(replace(TINY, seed=seed), file, apart=(), progress=False)
    one, again, other = (file.read_bytes() for file in files)
    assert one == again != other
    assert dev_path(files[0]).read_bytes() == dev_path(files[1]).read_bytes()
    (kept,) = kept_domains(TINY)
    learnt, dev = read_sequences(files[0]), read_sequences(dev_path(files[0]))
    assert {each.group.partition("-")[0] for each in dev} == {kept}
    assert kept not in {each.group.partition("-")[0] for each in learnt}
    helped = [each for each in learnt if each.group.startswith("life-helper.")]
    assert len(helped) >= TINY.lessons * TINY.count


def test_each_toolset_is_spoken_to_in_its_own_way() -> None:
    kinds = {
        part.name: [talk.kind for talk in part.talks] for part in parts(replace(FEW, count=140), [])
    }
    assert len({tuple(each) for each in kinds.values()}) == len(kinds) == FEW.toolsets


@pytest.mark.anyio
@pytest.mark.parametrize("change", [{"count": 10, "dev": 60}, {"lessons": 1.0, "dev": 0}])
async def test_what_would_leave_nothing_to_learn_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="leaves nothing to learn from beside"):
        await make(replace(FEW, **change), tmp_path / "train.jsonl", progress=False)
