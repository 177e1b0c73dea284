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

BROKEN = """
- id: a
  turns:
    - user: {text}
      confirm: maybe
      expect: {{calls: [{{tool: add, args: {{x: 1}}}}, {{tool: add_item, args: {{name: 5, q: 1}}}}], extra: x}}
      reply: {{contains: [x]}}
- id: a
  turns: []
- id: b
  colour: red
  repeat: yes
  final: {{items: 1, nothing: [{{id: x}}]}}
  turns:
    - user: {text}
      expect: {{calls: [{{tool: add_item, args: {{name: {{txt: x}}, quantity: {{min: x}}}}, result: 5}}]}}
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
eval --model gold --name gold --details
eval --model silent --name silent --details
eval --model silent --name silent --baseline runs/gold --max-regressions 0 --fail-under 90
eval --model silent --name silent --baseline runs/gold --margin 3 --max-violations 0
eval --model gold --name gold --baseline runs/silent --max-p95-turn 1ns --max-p95-ttft 1s
eval --model gold --name gold --exit-zero --max-prompt-tokens 1 --min-score x=1
eval --model gold --name part --limit 2 --repeats 2 --user hasty --stress distractors=1,shuffle
eval --model gold --only none*
eval --model gold --name gold --html a.html --markdown a.md --junit a.xml
eval --model silent --name silent --html b.html --markdown b.md --junit b.xml --baseline runs/gold
eval --model org/m --base-url http://127.0.0.1:9 --limit 1
eval --model org/m --base-url nowhere
eval --runtime llama.cpp --constrain auto --limit 1
eval nothing.yaml
eval --toolset nothing.py:x
eval --toolset tools.py:nothing
eval --baseline nothing
eval --concurrency 0
eval --dialect x
eval --nope
chat --toolset tools.py:nothing
chats list --folder none
chats show x --folder none
compare runs/gold runs/silent
compare runs/gold runs/part runs/silent
compare runs/gold runs/nothing
compare runs/gold runs/silent --margin 5
report runs/gold --html r.html --markdown r.md --junit r.xml
report runs/silent --markdown - --baseline runs/gold
report --history runs
report nothing
rescore runs/silent
rescore runs/silent --into runs/gold
agreement runs/gold
accept runs/silent
export runs/gold --sft a.jsonl --openai b.jsonl --inspect c.eval --otel d.jsonl
export runs/gold
lint
lint broken
lint doubtful
lint tools.py
mutate --fail-under 100
matrix suite.toml
matrix broken.toml
matrix none.toml
doctor --base-url http://127.0.0.1:9
init shop
init shop
import chats broken.json --into x
import chats none.json --into x
import calls broken.json --into x
import bfcl none --into x
mcp serve --toolset tools.py:nothing
prompt --scenario none
serve org/m --weights none
demo
nope
"""
SUITE = 'scenarios = "."\n[arms]\nmodels = ["gold", "silent"]\nusers = ["careful", "hasty"]\n'
BROKEN_SUITE = 'scenarios = 5\nrepeats = 0\ncolour = 1\n[arms]\nmodels = []\nconstraints = ["x"]\n'

NAMES = """
lhkit
""".split()
"""English words in Korean output: names, options, terms that Korean readers use as they are."""


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
        r"`[^`]*`|'[^']*'|\"[^\"]*\"|https?:\S+|[\w./-]+\.\w+(:[\w.]+)*|-?-[\w-]+", "", text
    )
    yield from (w for w in re.findall(r"[A-Za-z]{2,}", text) if w.lower() not in NAMES)


def readable(file: Path) -> str:
    """Return what a person reads of a written file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix in {".html", ".xml"}:
        text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
        text = html.unescape(re.sub(r"<[^>]*>", " ", text))
    return text


@pytest.mark.parametrize("locale", ["en", "ko"])
def test_outputs_are_in_one_language(
    locale: str, project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", {"en": "de_DE.UTF-8", "ko": "ko_KR.UTF-8"}[locale])
    write_project(project, locale)
    found = {}
    import time

    for line in filter(None, LINES.splitlines()):
        t = time.monotonic()
        code, out, err = run(*line.split())
        with open(f"/tmp/j63b/outputs-{locale}.txt", "a") as dump:
            print("$", line, "->", code, round(time.monotonic() - t, 2), "\n" + out, err, file=dump)
        if words := [*foreign(out + err, locale)]:
            found[line] = words
    import json

    open(f"/tmp/j63b/found-{locale}.json", "w").write(
        json.dumps(found, indent=0, ensure_ascii=False)
    )
    for file in sorted(project.rglob("*.*")):
        if file.suffix in {".html", ".md", ".xml"} and (
            words := [*foreign(readable(file), locale)]
        ):
            found[file.name] = words
    open(f"/tmp/j63b/found-{locale}.json", "w").write(json.dumps(found, ensure_ascii=False))
    assert found == {}
