"""Suite files: validation, and expansion into arms."""

from pathlib import Path

import pytest

from lhkit.base.errors import UsageError
from lhkit.harness.running.suite import Suite, expand_arms, load_suite
from tests.rows import check_rows

ROOT = Path(__file__).parents[3]


def written(folder: Path, text: str) -> Path:
    path = folder / "suite.toml"
    path.write_text(text, encoding="utf-8")
    return path


def names(folder: Path, text: str) -> list[str]:
    return [arm.name for arm in expand_arms(load_suite(written(folder, text)), folder)]


@check_rows(
    ("text", "complaint"),
    [
        ("scenarios = x", r"is not valid TOML: .*line 1, column"),
        (
            '[arms]\nconstraints = ["off", "always"]',
            r"arms\.constraints\[1\]: must be one of off, auto, required$",
        ),
        ("repeats = 0", r"suite\.toml: repeats: must be 1 or more$"),
        ("repeats = true", r"repeats: must be a whole number$"),
        ("repeat = 2", r"repeat: unknown field: did you mean repeats\?$"),
        ("[arms]\nmodels = []", r"arms\.models: must be a list of 1 or more$"),
        ("[arms]\nmodels = [5]", r"arms\.models\[0\]: must be a text or a mapping"),
        ('[arms]\nmodels = [{name = "a", url = "b"}]', r"arms\.models\[0\]\.url: unknown field\Z"),
        ('[arms]\nmodels = [{nam = "a"}]', r"models\[0\]\.nam: unknown field: did you mean name\?"),
        ("fail_under = 101", r"fail_under: must be 100 or less$"),
        (
            '[arms]\nprompts = ["short"]',
            r"arms\.prompts: there is no \[prompts\.short\]. Use one of default",
        ),
        ("[prompts.short]\nko = 5", r"prompts\.short\.ko: must be a text or a mapping"),
        (
            'scenarios = "tset"',
            r"scenarios: must be one of dev, test, all or a list: did you mean test",
        ),
        ("scenarios = 5", r"scenarios: must be one of dev, test, all or a list$"),
        ('scenarios = ""', r"scenarios: must be one of dev, test, all or a list"),
    ],
)
def test_load_suite_names_file_and_field_of_issues(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=complaint) as refused:
        load_suite(path)
    assert all(line.startswith(str(path)) for line in str(refused.value).splitlines())


PLACES = {
    '"."': (".",),
    '".."': ("..",),
    '"./dev"': ("dev",),
    '"my scenarios"': ("my scenarios",),
    '"one.yaml"': ("one.yaml",),
    '"*.yaml"': ("*.yaml",),
    '"/absent"': ("/absent",),
    '["."]': (".",),
    '"dev"': "dev",  # the shipped ones, whatever folder there is
}


@check_rows("value", PLACES)
def test_load_suite_takes_a_single_place_of_scenarios(tmp_path: Path, value: str) -> None:
    for name in ("my scenarios", "dev"):
        (tmp_path / name).mkdir()
    expected = PLACES[value]
    scenarios = load_suite(written(tmp_path, f"scenarios = {value}")).scenarios
    assert scenarios == (expected if isinstance(expected, str) else tuple(map(Path, expected)))


def test_load_suite_refuses_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_suite(tmp_path / "none.toml")


@check_rows(
    ("text", "expected"),
    [
        ("repeats = 1", ["gemma"]),
        ('[arms]\nconstraints = ["off", "auto"]', ["off", "auto"]),
        (
            '[arms]\nmodels = ["gold", "silent"]\nstress = ["", "distractors=3,shuffle"]',
            [
                "gold-plain",
                "gold-distractors=3,shuffle",
                "silent-plain",
                "silent-distractors=3,shuffle",
            ],
        ),
        (
            '[arms]\nmodels = [{base_url = "http://a:1"}, {name = "o/m", base_url = "http://a:1"}]',
            ["http-a-1", "o-m"],
        ),
        ('arms.prompts = ["default", "short"]\nprompts.short.ko = "x"', ["default", "short"]),
    ],
)
def test_expand_arms_names_what_varies(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert names(tmp_path, text) == expected


def test_expand_arms_refuses_duplicate_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Two arms have the name 'gold'"):
        names(tmp_path, '[arms]\nmodels = ["gold", "gold"]')


def test_expand_arms_reads_prompt_files(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("길게 답해.\n", encoding="utf-8")
    text = (
        'arms.prompts = ["default", "own"]\n[prompts.own]\nen = "Be brief."\n'
        'ko = {file = "long.txt"}\n'
    )
    default, own = expand_arms(load_suite(written(tmp_path, text)), tmp_path)
    assert default.options.instructions == {}
    assert own.options.instructions == {"en": "Be brief.", "ko": "길게 답해."}
    with pytest.raises(UsageError, match=r"long\.txt cannot be read"):
        expand_arms(load_suite(written(tmp_path, text)), tmp_path / "elsewhere")


@check_rows("path", sorted((ROOT / "evals").glob("*.toml")), ids=lambda path: path.stem)
def test_load_suite_reads_shipped_suites(path: Path) -> None:
    suite = load_suite(path)
    assert isinstance(suite, Suite)
    assert len(expand_arms(suite, path.parent)) > 1
