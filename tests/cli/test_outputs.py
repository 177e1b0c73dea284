"""What commands print and write is in one language: all of it, not only sentences of the code.

Each command runs in a project whose data is in that language. English is found word by word: what
a Korean text may contain of it is listed in `NAMES`.
"""

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lhkit.cli.demo.assistant import scenario_file
from lhkit.cli.demo.demo import TOOLS
from tests.cli.conftest import Run

pytestmark = pytest.mark.longer

BROKEN = """
- id: a
  turns:
    - user: {text}
      confirm: maybe
      expect: {{calls: [{{tool: add, args: {{x: 1}}}}, {{tool: add_item}}], extra: x}}
      reply: {{contains: [x]}}
- id: a
  turns: []
- id: b
  colour: red
  repeat: yes
  final: {{items: 1, nothing: [{{id: x}}]}}
  turns:
    - user: {text}
      expect: {{calls: [{{tool: add_item, args: {{name: {{txt: x}}}}, result: 5}}]}}
- 5
"""
DOUBTFUL = """
- id: {id}
  ac: nothing
  turns:
    - user: {text}
      expect: {{calls: [{{tool: remove_item, args: {{name: {text}}}, result: ok}}]}}
    - user: {text}
      confirm: accept
      reply: {{contains_any: ["{text}", "("]}}
- id: {id}2
  turns:
    - user: {text}
      confirm: accept
      expect: {{calls: [{{tool: add_item, args: {{name: {text}}}, result: ok}}]}}
      reply: {{matches: "(a+)+$"}}
  final: {{items: [{{id: {text}, quantity: 3}}]}}
  gone: {{items: [{{id: {text}}}]}}
"""
LINES = """
eval --model gold --name gold --details --html a.html --markdown a.md --junit a.xml
eval --model silent --name silent --baseline runs/gold --max-regressions 0 --fail-under 90
eval --model silent --name silent --baseline runs/gold --margin 3 --max-violations 0
eval --model gold --name gold --baseline runs/silent --max-p95-turn 1ms --max-p95-ttft 1s
eval --model gold --name gold --exit-zero --max-prompt-tokens 1
eval --model gold --name part --limit 2 --repeats 2 --user hasty --stress distractors=1,shuffle
eval --model gold --only none*
eval --model gold --min-score x=1
eval --model org/m --base-url http://127.0.0.1:9 --limit 1
eval --model org/m --base-url nowhere
eval --runtime llama.cpp --constrain auto --limit 1
eval nothing.yaml
eval --toolset nothing.py:x
eval --baseline nothing
eval --concurrency 0
eval --dialect x
eval --nope
chat --toolset tools.py:nothing
compare runs/gold runs/silent
compare runs/gold runs/part runs/silent
compare runs/gold runs/nothing
report runs/silent --html b.html --markdown - --junit b.xml --baseline runs/gold
report --history runs
rescore runs/silent
rescore runs/silent --into runs/gold
agreement runs/gold
accept runs/silent
export runs/gold --openai-messages b.jsonl
export runs/gold
lint
lint broken
lint doubtful
lint tools.py
mutate --fail-under 100 --limit 2
matrix suite.toml
matrix suite1.toml
matrix suite2.toml
matrix suite3.toml
matrix suite4.toml
matrix broken.toml
matrix none.toml
doctor --base-url http://127.0.0.1:9
init shop
init shop
import chat broken.json --into x
import calls broken.json --into x
import bfcl none --into x
mcp serve --toolset tools.py:nothing
prompt --scenario none
serve org/m --weights none
nope
"""
SUITE = 'scenarios = "."\n[arms]\nmodels = ["gold", "silent"]\nusers = ["careful", "hasty"]\n'
WORDINGS = (
    'models = ["gold", "silent"]\n[descriptions.other]\nadd_item = "x"',
    'models = ["gold"]\n[descriptions.other]\nadd_items = "x"',
    'models = ["gold"]\n[descriptions.other]\nadd_item = {name = "x"}\nremove_item = {xx = "y"}',
    'models = ["gold"]\n[descriptions.other]\n"add_item.nam" = "x"\n[descriptions.empty]',
)
"""Arms of suites with other descriptions, all but the first with mistakes."""
BROKEN_SUITE = 'scenarios = 5\nrepeats = 0\ncolour = 1\n[arms]\nmodels = []\nconstraints = ["x"]\n'

NAMES = frozenset(
    """
    lhkit eval chats compare report rescore agreement accept export lint mutate matrix doctor
    import bfcl functionchat mcp serve prompt pytest python options command args run chat sample
    folder paths name server cd demo shop p gold silent part org vllm json openai gemma
    functiongemma pythonic shuffle distractors scripted life helper list items add item remove
    shoppinglist registry shopping none nothing tools toolset suite off auto required dev test
    all careful hasty reject absent any reads contains ok cancelled milk oat eggs bread butter
    bananas chocolate apples twice thanks show count yaml toml jsonl html xml md ac id ids ko en
    mcnemar holm mid pass api ram cpu gpu url csv utc ci linux x86 ms max tokens temperature
    jsonschema pydantic ruamel scipy final gone world turns calls expect reply user code details
    summary quantity label line drop call extra write read say unrelated answer swap tool
    argument alter duplicate skip gate optional retry after rejection claim success messages
    parameters mapping file unchecked echo underivable runs answered accepted rejected confirm
    result top colour repeats scenarios lines
    """.split()  # noqa: SIM905 - a list of them would be a page
)
"""English words in Korean output: names, codes, options, and terms that Korean readers know."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"LHKIT_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("COLUMNS", "400")
    for name in ("LHKIT_LOCALE", "LC_ALL", "LC_MESSAGES", "LHKIT_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "p"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write_project(folder: Path, locale: str) -> None:
    shutil.copy(TOOLS, folder / "tools.py")
    shutil.copy(scenario_file(locale), folder / "a.scenario.yaml")
    (folder / "lhkit.toml").write_text(
        'toolset = "tools.py:toolset"\nscenarios = "a.scenario.yaml"'
    )
    (folder / "suite.toml").write_text(SUITE.replace('"."', '"a.scenario.yaml"'))
    for number, arms in enumerate(WORDINGS, start=1):
        text = f'scenarios = "a.scenario.yaml"\n[arms]\n{arms}\n'
        (folder / f"suite{number}.toml").write_text(text)
    (folder / "broken.toml").write_text(BROKEN_SUITE)
    (folder / "broken.json").write_text(
        '[{"messages": 5}, {"x": 1}, {"messages": [{"role": "x"}]}]'
    )
    text = {"en": "bread", "ko": "빵"}[locale]
    for name, template in {"broken": BROKEN, "doubtful": DOUBTFUL}.items():
        (folder / name).mkdir()
        written = template.format(text=text, id="c")
        (folder / name / "x.scenario.yaml").write_text(written, encoding="utf-8")


def foreign(text: str, locale: str) -> Iterator[str]:
    """Yield the words of the other language in an output."""
    if locale == "en":
        yield from re.findall("[가-힣]+", text)
        return
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    text = re.sub(
        r"`[^`]*`|'[^']*'|\"[^\"]*\"|https?:\S+|[\w./-]+\.\w+(:[\w.]+)*|/[\w./-]+|-?-[\w-]+",
        " ",
        text,
    )
    yield from (w for w in re.findall(r"[A-Za-z]{2,}", text) if w.lower() not in NAMES)


def readable(file: Path) -> str:
    """Return what a person reads of a written file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix in {".html", ".xml"}:
        text = re.sub(r"<(script|style|code|pre|property)\b.*?(</\1>|/>)", " ", text, flags=re.S)
        text = html.unescape(re.sub(r"<[^>]*>", " ", text))
    return text


@pytest.mark.parametrize("locale", [pytest.param("en", marks=pytest.mark.nightly), "ko"])
def test_outputs_are_in_one_language(
    locale: str, project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", {"en": "de_DE.UTF-8", "ko": "ko_KR.UTF-8"}[locale])
    write_project(project, locale)
    found: dict[str, list[str]] = {}
    for line in filter(None, LINES.splitlines()):
        _, out, err = run(*line.split())
        found[line] = [*foreign(out + err, locale)]
    written = (f for f in sorted(project.glob("*.*")) if f.suffix in {".html", ".md", ".xml"})
    found |= {file.name: [*foreign(readable(file), locale)] for file in written}
    assert {name: words for name, words in found.items() if words} == {}
