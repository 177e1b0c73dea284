"""Names made up: a word that nobody heard before is said, is there, and is called for alike."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lhkit.commands.tune import dev_path, make_data
from lhkit.commands.tune_options import DataOptions
from lhkit.errors import TuningError, UsageError
from lhkit.settings import Settings
from lhkit.testing import object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.data import read_sequences
from lhkit.tuning.phrases.file import particle_after
from lhkit.tuning.phrases.generate import DrawingStage, conversations
from lhkit.tuning.phrases.names import names_of
from lhkit.tuning.phrases.values import given_values, is_any_text
from lhkit.tuning.teacher import Conversation, simulate
from tests.tuning import test_own_chains as house
from tests.tuning import test_own_drawing as timers

WHEN = "{when: [{say: on shed day, args: {day: '2026-06-15'}}]}"
NAMES = {"attic", "cellar", "shed"}, {"lamp", "rug", "unicorn"}


def names(book: Any, registry: ToolRegistry, locale: str = "en") -> set[frozenset[str]]:
    return set(names_of(book.phrases.locales[locale], registry, book.phrases.worlds).groups)


def drawn(
    book: Any, stage: DrawingStage, share: float = 1.0, count: int = 40
) -> list[Conversation]:
    stages = dict.fromkeys(book.phrases.locales, stage)
    return list(
        conversations(book, stages, count=count, seed=1, korean_share=0.5, made_up_names=share)
    )


STAGE = DrawingStage(registry=house.REGISTRY, days=[house.TODAY], most_calls=3)


def boxes_in(told: Conversation) -> set[str]:
    return {box["name"].casefold() for box in told.world["boxes"].values()}


def asked_for(told: Conversation) -> set[str]:
    lines = " ".join(line.user for line in told.lines)
    return set(re.findall(r"in the (\w+)\?", lines)) | set(re.findall(r"the (\w+) away", lines))


def test_what_is_looked_up_is_a_name_and_those_of_one_argument_are_alike(tmp_path: Path) -> None:
    assert names(house.book_of(tmp_path), house.REGISTRY) == set(map(frozenset, NAMES))


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ("No {box_id} here.", "No {box_id} here, or in the shed.", "shed"),
        ("[which boxes?]", "[which boxes?, {text: the attic, args: {}}]", None),
        (
            "say: ['what is in the {box_id}?']",
            "say: ['what is in the {box_id}?', {text: the rug?, args: {query: rug, box_id: b7}}]",
            "rug",
        ),
        ("say: [lamp, rug]", "say: [lamp, rug 2]", None),
        ("say: [lamp, rug]", "say: [lamp, the old moth eaten rug]", "rug lamp"),
        ("where: {name: '{say}'}", "where: {name: attic}", "attic cellar shed"),
        ("{name: cellar, things:", "{name: cellar, attic: 1, things:", "attic"),
        ("say: [attic, cellar, shed]", "say: [Čelist, keller, shed]", "attic cellar"),
        ("say: [lamp, rug]", "say: [lamp, rug]\n              told: it", None),
        ("say: [lamp, rug]", "say: [lamp, rug]\n              told: the lamp", "lamp"),
        (
            "say: ['what is in the {box_id}?']",
            f"say: ['what is in the {{box_id}} {{when}}?']\n        slots: {WHEN}",
            "shed",
        ),
    ],
)
def test_a_word_that_something_else_is_said_with_is_no_name(
    tmp_path: Path, before: str, after: str, gone: str | None
) -> None:
    text = house.PHRASES.replace(before, after)
    assert text != house.PHRASES
    found = names(house.book_of(tmp_path, text), house.REGISTRY)
    still = {word for group in NAMES for word in group} - set((gone or "").split())
    assert {word for group in found for word in group} - {"keller"} == still


@pytest.mark.anyio
async def test_a_name_is_the_same_one_in_the_world_in_what_is_said_and_in_the_call(
    tmp_path: Path,
) -> None:
    book = house.book_of(tmp_path)
    told = drawn(book, STAGE)
    plain = drawn(book, STAGE, share=0.0)
    known = {word for group in NAMES for word in group}
    said = set().union(*map(asked_for, told))
    assert len(said - known) > 10
    assert set().union(*map(asked_for, plain)) <= known
    texts = [each.text for each in await simulate(told, house.House(), progress=False)]
    answers = " ".join(texts)
    for each in told:
        for word in asked_for(each) & boxes_in(each):
            assert f"In the {word}: " in answers
    spoken = [box["name"] for each in told for box in each.world["boxes"].values()]
    assert any(name[0].isupper() for name in spoken)  # Attic was written so
    assert {each.split()[0] for each in thing_names(told)} >= {"red"}  # no name, and stays


def thing_names(told: list[Conversation]) -> list[str]:
    return [
        thing["name"]
        for each in told
        for box in each.world["boxes"].values()
        for thing in box["things"]
    ]


def test_no_two_names_become_one_and_none_leaves_its_kind(tmp_path: Path) -> None:
    """A box is called by another box's name or a new one, never by that of a thing."""
    for told in drawn(house.book_of(tmp_path), STAGE):
        assert len(boxes_in(told)) == 2
        assert boxes_in(told).isdisjoint(NAMES[1])


def test_a_share_of_the_conversations_has_them_and_a_seed_decides_which(tmp_path: Path) -> None:
    book = house.book_of(tmp_path)
    half, again = (drawn(book, STAGE, share=0.5, count=100) for _ in range(2))
    assert [each.world for each in half] == [each.world for each in again]
    as_written = sum(boxes_in(each) == {"attic", "cellar"} for each in half)
    assert 30 <= as_written <= 70


def test_a_korean_particle_fits_the_name_that_is_said(tmp_path: Path) -> None:
    text = timers.PHRASES.replace("typos: true\n", "").replace(
        "worlds:", "typos: false\nworlds:", 1
    )
    text = text.replace("[차, 물, 빨래, 달걀, {say: [밥, 쌀밥], value: rice}]", "[빨래, 달걀]")
    book = timers.book_of(tmp_path, text)
    stage = DrawingStage(registry=timers.REGISTRY, days=[timers.MONDAY] * 2)
    said = " ".join(line.user for each in drawn(book, stage) for line in each.lines)
    found = re.findall(r"([가-힣]{2,}?)(을|를) 알려", said)
    assert len({word for word, _ in found} - {"빨래", "달걀", "라면"}) > 5
    assert all(particle_after(word, "을") == particle for word, particle in found)


def test_a_world_that_cannot_be_with_other_names_keeps_its_own(tmp_path: Path) -> None:
    book = house.book_of(tmp_path)
    stage = replace(STAGE, opens=lambda _world: False)
    assert all(boxes_in(each) == {"attic", "cellar"} for each in drawn(book, stage))


NULLABLE = (
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"anyOf": [{"type": "string"}, {"enum": [None]}]},
    {"anyOf": [{"type": "string"}, {"const": None}]},
)

FOODS = """
from dataclasses import dataclass, field
from datetime import date

from lhkit.chat.controller import Assistant
from lhkit.messages import ToolErr, ToolOk
from lhkit.testing import echo_tool, object_schema
from lhkit.testing import object_schema
from lhkit.tools.registry import ToolRegistry

def buy(args, bought):
    if len(args["food"]) > LONGEST:
        return ToolErr("too_long", "the name is too long")
    return ToolOk({"food": args["food"], "unit": args.get("unit", "piece")})

REGISTRY = ToolRegistry([
    echo_tool(
        "buy",
        parameters=object_schema(
            "food",
            food={"type": "string", "examples": ["bread"]},
            unit={"type": "string", "enum": ["bottle", "box"]},
        ),
        handler=buy,
        is_destructive=True,
    )
])

@dataclass
class Session:
    today: date = date(2026, 6, 15)
    registry: ToolRegistry = field(default_factory=lambda: REGISTRY)

    @property
    def assistant(self):
        return Assistant(instructions="Foods.", deps=[])

    def state(self):
        return {}

    def close(self):
        pass

class Foods:
    def open(self, world, locale):
        return Session()
"""
FOOD_PHRASES = """
typos: false
locales:
  en:
    tools:
      buy:
        say: ['buy {food}', 'buy a {unit} of {food}', {text: 'lots of honey', args: {food: honey}}]
        values:
          food:
            - milk
            - soda
            - honey
            - bread
            - bottle opener
            - {say: [eggplant, aubergine, the purple one], value: eggplant}
            - {say: courgette, value: zucchini}
          unit: [{say: [bottle, bottles], value: bottle}, {say: [box, boxes], value: box}]
        replies:
          ok: ['Bought {food}: {food.value}.']
          cancelled: [Not bought.]
"""


async def foods(
    folder: Path, capsys: pytest.CaptureFixture[str], longest: int, **asked: Any
) -> tuple[list[str], str]:
    """The answers that are learnt, and what is said of them."""
    (folder / "foods.py").write_text(FOODS.replace("LONGEST", str(longest)), encoding="utf-8")
    (folder / "p.yaml").write_text(FOOD_PHRASES, encoding="utf-8")
    options = DataOptions(
        out=folder / "out.jsonl",
        count=80,
        toolset=f"{folder / 'foods.py'}:Foods",
        phrases=folder / "p.yaml",
        **asked,
    )
    await make_data(options, Settings(locale="en"), progress=False)
    texts = [
        each.text for each in (*read_sequences(options.out), *read_sequences(dev_path(options.out)))
    ]
    return texts, capsys.readouterr().err


@pytest.mark.anyio
async def test_only_what_is_said_as_it_is_called_becomes_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a word that a value has beside others, a choice, or what a sentence means by itself."""
    texts, told = await foods(tmp_path, capsys, 99, made_up_names=1)
    assert "Made-up names in 80 of 80 conversations; 0 of these did not fit" in told
    pairs = [pair for text in texts for pair in re.findall(r"Bought (.+?): (.+?)\.", text)]
    synonyms = {"eggplant", "aubergine", "the purple one"}
    for said, called in pairs:
        assert said == called or (said, called) in {
            ("courgette", "zucchini"),
            *((word, "eggplant") for word in synonyms),
        }
    kept = {"eggplant", "zucchini", "honey", "bread"}
    assert kept <= {called for _, called in pairs}
    assert not {called for _, called in pairs} <= kept | {"milk", "soda", "bottle opener"}


@pytest.mark.anyio
async def test_what_does_not_fit_with_another_name_is_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, told = await foods(tmp_path, capsys, 14, made_up_names=1)
    assert re.search(r"; [1-8] of these did not fit and were left out", told)
    assert texts
    assert not any("model\n–" in text for text in texts)


@pytest.mark.anyio
async def test_what_hardly_ever_fits_is_a_fault_of_the_file_that_names_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TuningError, match=r"p\.yaml:\d+: .*buy came to `too_long`"):
        await foods(tmp_path, capsys, 3, made_up_names=1)


@pytest.mark.parametrize("schema", NULLABLE)
def test_a_text_that_may_be_null_is_a_text(schema: dict[str, Any]) -> None:
    parameters = object_schema(name=schema)
    assert is_any_text(parameters, "name")
    assert given_values(parameters, "name") == ()


@pytest.mark.parametrize("kind", ["integer", ["integer", "null"]])
def test_a_number_is_no_text(kind: Any) -> None:
    parameters = object_schema(name={"type": kind, "minimum": 1, "maximum": 2})
    assert not is_any_text(parameters, "name")
    assert {value.value for value in given_values(parameters, "name")} == {1, 2}


@pytest.mark.anyio
async def test_they_are_refused_where_no_phrase_file_says_what_a_name_is(tmp_path: Path) -> None:
    options = DataOptions(out=tmp_path / "out", conversations="a.py:talks", made_up_names=0.5)
    with pytest.raises(UsageError, match="--made-up-names is for a phrase file"):
        await make_data(options, Settings(), progress=False)
