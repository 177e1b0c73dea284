"""What is wrong in a phrase file is one sentence with file, line and field."""

from pathlib import Path

import pytest

from lhkit.errors import TuningError
from lhkit.testing import echo_tool, object_schema
from lhkit.tools.registry import ToolRegistry
from lhkit.tuning.phrases.check import check_fit
from lhkit.tuning.phrases.file import MORE, read_phrases

REGISTRY = ToolRegistry(
    [
        echo_tool(
            "set_timer",
            parameters=object_schema(
                "name",
                "minutes",
                name={"type": "string", "minLength": 2},
                minutes={"type": "integer", "minimum": 1, "maximum": 60},
                sound={"enum": ["bell", "horn"]},
                loud={"type": "boolean"},
            ),
            is_destructive=True,
        ),
        echo_tool("list_timers"),
    ]
)

GOOD = """\
locales:
  en:
    tools:
      set_timer:
        say:
          - 'set {name} to {minutes} minutes'
          - {text: an hour for {name}, args: {minutes: 60}}
        values:
          name: [tea, eggs]
        failing:
          name: [nothing at all]
        replies:
          ok: ['{name} runs, {args.minutes} minutes']
          cancelled: [not set]
          refused: ['no: {reason}']
      list_timers:
        say: [which timers run?]
        replies:
          ok: [these]
""".replace("{text: an hour for {name}", "{text: 'an hour for {name}'")


def checked(folder: Path, text: str) -> str:
    """Return the faults of a phrase file, without its folder; nothing if it is fine."""
    file = folder / "p.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        check_fit(read_phrases(file), {"en": REGISTRY})
    except TuningError as error:
        return str(error).replace(f"{folder}/", "").removesuffix(f"\n{MORE}")
    return ""


def test_a_file_that_fits_is_taken(tmp_path: Path) -> None:
    assert checked(tmp_path, GOOD) == ""


SAID = "set {name} to {minutes} minutes"
SET, LIST = "locales.en.tools.set_timer", "locales.en.tools.list_timers"
NO_ARGUMENT = "is no argument of set_timer (arguments: name, minutes, sound, loud)"

FAULTS = [
    (
        "        say: [which timers run?]\n",
        "",
        16,
        LIST,
        "the tool list_timers has no `say`: write",
    ),
    (
        "      list_timers:",
        "      lst:",
        16,
        "locales.en.tools.lst",
        "there is no tool 'lst': choose",
    ),
    (SAID, "{nme} {name} {minutes}", 6, f"{SET}.say[0]", f"{{nme}}: 'nme' {NO_ARGUMENT}"),
    (SAID, "set {name}", 6, f"{SET}.say[0]", "the required argument 'minutes' of set_timer is not"),
    (SAID, "{minutes} please", 6, f"{SET}.say[0]", "the required argument 'name' of set_timer is"),
    (SAID, "{name {minutes}", 6, f"{SET}.say[0]", "'{name {minutes}': "),
    (SAID, "{name.x} {minutes!r}", 6, f"{SET}.say[0]", "'{name.x} {minutes!r}': {minutes} is no"),
    (SAID, "{name} {minutes} {loud}", 6, f"{SET}.say[0]", "{loud}: true is no word: write `values"),
    ("minutes: 60", "minutes: 61", 7, f"{SET}.say[1].args.minutes", "61 breaks the schema: expect"),
    ("minutes: 60", "name: tea", 7, f"{SET}.say[1]", "the required argument 'minutes' of set_tim"),
    ("minutes: 60", "m: 60", 7, f"{SET}.say[1]", "the required argument 'minutes' of set_timer is"),
    ("name: [tea, eggs]", "n: [tea]", 9, f"{SET}.values.n", f"'n' {NO_ARGUMENT}"),
    ("[tea, eggs]", "[tea, x]", 9, f"{SET}.values.name[1]", '"x" breaks the schema: expected str'),
    (
        "[tea, eggs]",
        "[{is: x}]",
        9,
        f"{SET}.values.name[0]",
        '{"is":"x"} must be {say: words, value',
    ),
    ("[tea, eggs]", "[{say: a, date: b}]", 9, f"{SET}.values.name[0]", "date: "),
    ("[tea, eggs]", "[{say: 1, value: tea}]", 9, f"{SET}.values.name[0]", "say: 1 must be a text"),
    ("[nothing at all]", "[x]", 11, f"{SET}.failing.name[0]", '"x" breaks the schema'),
    (
        "          cancelled: [not set]\n",
        "",
        12,
        f"{SET}.replies.cancelled",
        "set_timer has no rep",
    ),
    (
        "[not set]",
        "['{reason}']",
        14,
        f"{SET}.replies.cancelled[0]",
        "{reason} is no slot here: sl",
    ),
    ("[these]", "['{a']", 19, f"{LIST}.replies.ok[0]", "'{a': "),
    ("[these]", "these", 19, f"{LIST}.replies.ok", "must be a list"),
    (
        "        say: [which",
        "        says: [which",
        17,
        f"{LIST}.says",
        "unknown field: did you mean say?",
    ),
    ("  en:", "  fr:", 2, "locales.fr", "must be one of en, ko"),
    ("locales:", "languages:", 1, "languages", "unknown field"),
    ("[these]", "[these", 20, "(top)", "not YAML: "),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_with_line_and_field(
    tmp_path: Path, fault: tuple[str, str, int, str, str]
) -> None:
    old, new, line, place, message = fault
    assert GOOD.count(old) == 1
    told = checked(tmp_path, GOOD.replace(old, new)).splitlines()
    assert any(each.startswith(f"p.yaml:{line}: {place}: {message}") for each in told), told


@pytest.mark.parametrize(
    ("old", "new"),
    [("say:", "says:"), (SAID, "{name} in {hours}")],
    ids=["of the file's form", "of its fit to the tools"],
)
def test_faults_that_hide_others_end_with_a_sentence_about_those(
    tmp_path: Path, old: str, new: str
) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(TuningError) as raised:
        check_fit(read_phrases(file), {"en": REGISTRY})
    *faults, last = str(raised.value).splitlines()
    assert faults
    assert last == MORE


def test_an_argument_that_a_sentence_means_twice_is_told(tmp_path: Path) -> None:
    told = checked(tmp_path, GOOD.replace("minutes: 60", "minutes: 60, name: tea"))
    where = "p.yaml:7: locales.en.tools.set_timer.say[1].args.name"
    assert told == f"{where}: {{name}} is said in the sentence, too: keep one of both"


def test_a_schema_without_values_names_tool_and_argument_and_the_way_out(tmp_path: Path) -> None:
    told = checked(tmp_path, GOOD.replace("name: [tea, eggs]", "sound: [bell]"))
    assert told.splitlines()[0] == (
        "p.yaml:6: locales.en.tools.set_timer.say[0]: the schema of set_timer gives no values for "
        "'name' (string of 2.. characters): list some under `values: {name: […]}`"
    )


def test_a_required_argument_that_nothing_fills_is_told(tmp_path: Path) -> None:
    text = GOOD.replace(SAID, "{minutes} please").replace("name: [tea, eggs]", "sound: [bell]")
    assert checked(tmp_path, text).splitlines()[0] == (
        "p.yaml:6: locales.en.tools.set_timer.say[0]: neither a slot nor values fill the required "
        "argument 'name' of set_timer: say {name} in the sentence and list `values:` for it"
    )


def test_one_sentence_tells_of_the_first_todo_and_how_many_more_there_are(tmp_path: Path) -> None:
    text = GOOD.replace("[these]", "[TODO]\n          refused: ['TODO: words', no]")
    assert checked(tmp_path, text) == (
        "p.yaml:19: locales.en.tools.list_timers.replies.ok[0]: a TODO is left (1 more after it): "
        "write your own words there, or delete the line"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "p.yaml is empty: `lhkit tune init` writes a file to fill in"),
        ("# only a comment\n", "p.yaml is empty"),
        ("just words\n", "p.yaml:1: must be a mapping with `locales:`"),
        ("a: [1\nb: 2\n", "p.yaml:2: (top): not YAML: "),
        ("locales: {}\n", "p.yaml:1: locales: "),
    ],
)
def test_a_file_that_is_none_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    told = checked(tmp_path, text)
    assert told.startswith(sentence)
    assert "\n" not in told


def test_a_file_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(TuningError, match=r"no\.yaml: there is no such file.*lhkit tune init"):
        read_phrases(tmp_path / "no.yaml")


def test_a_sentence_that_yaml_takes_for_a_mapping_gets_the_hint_to_quote_it(tmp_path: Path) -> None:
    told = checked(tmp_path, GOOD.replace(f"'{SAID}'", "{name} now"))
    assert told.endswith("(a text that begins with { or holds ': ' needs quotes)")
