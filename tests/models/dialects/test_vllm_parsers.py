"""vLLM's own parsers beside ours: the faults that are the reason to parse in the client.

They are run in a process of their own, because importing vLLM takes a while. A test here that
fails after an update of vLLM means that a fault was mended: then look again at what we parse.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from lhkit.models.dialects import DIALECTS
from lhkit.models.families import FAMILIES, Family

pytestmark = pytest.mark.gemma

SCRIPT = """
import json, sys
from vllm.tool_parsers.functiongemma_tool_parser import FunctionGemmaToolParser
from vllm.tool_parsers.pythonic_tool_parser import PythonicToolParser

class Tokenizer:
    def get_vocab(self):
        return {}

kinds = {"functiongemma": FunctionGemmaToolParser, "pythonic": PythonicToolParser}
found = []
for dialect, raw in json.load(sys.stdin):
    said = kinds[dialect](Tokenizer()).extract_tool_calls(raw, None)
    calls = [[c.function.name, json.loads(c.function.arguments)] for c in said.tool_calls]
    found.append(calls)
print("FOUND" + json.dumps(found))
"""

E = "<escape>"
OPEN, CLOSE = "<start_function_call>call:", "<end_function_call>"

# name: (dialect, what the model wrote, calls of vLLM, calls of ours)
CASES: dict[str, tuple[str, str, list[Any], list[Any]]] = {
    "functiongemma drops numbers": (
        "functiongemma",
        f"{OPEN}add{{x:5,y:7}}{CLOSE}",
        [["add", {}]],
        [["add", {"x": 5, "y": 7}]],
    ),
    "functiongemma drops booleans and lists": (
        "functiongemma",
        f"{OPEN}f{{flag:true,items:[{E}a{E}]}}{CLOSE}",
        [["f", {}]],
        [["f", {"flag": True, "items": ["a"]}]],
    ),
    "functiongemma hoists the members of an object": (
        "functiongemma",
        f"{OPEN}f{{o:{{inner:{E}v{E}}}}}{CLOSE}",
        [["f", {"inner": "v"}]],
        [["f", {"o": {"inner": "v"}}]],
    ),
    "functiongemma makes a number of a phone number": (
        "functiongemma",
        f"{OPEN}f{{number:{E}1012345678{E}}}{CLOSE}",
        [["f", {"number": 1012345678}]],
        [["f", {"number": "1012345678"}]],
    ),
    "functiongemma reports a cut call as complete": (
        "functiongemma",
        f"{OPEN}f{{a:{E}x{E},b:{E}y",
        [["f", {"a": "x"}]],
        [],
    ),
    "functiongemma does not see a name with a hyphen": (
        "functiongemma",
        f"{OPEN}log-water{{a:{E}x{E}}}{CLOSE}",
        [],
        [["log-water", {"a": "x"}]],
    ),
    "pythonic refuses a fence": (
        "pythonic",
        "```tool_code\n[f(a=1)]\n```",
        [],
        [["f", {"a": 1}]],
    ),
    "pythonic refuses words before": ("pythonic", "네 [f(a=1)]", [], [["f", {"a": 1}]]),
    "pythonic refuses words after": ("pythonic", "[f(a=1)] 네", [], [["f", {"a": 1}]]),
    "pythonic refuses a leading newline": ("pythonic", "\n[f(a=1)]", [], [["f", {"a": 1}]]),
    "pythonic refuses a parameter named from": (
        "pythonic",
        '[f(from="x")]',
        [],
        [["f", {"from": "x"}]],
    ),
    "pythonic refuses a parameter named in Korean": (
        "pythonic",
        '[f(이름="x")]',
        [],
        [["f", {"이름": "x"}]],
    ),
    "pythonic refuses a line break in a string": (
        "pythonic",
        '[f(a="x\ny")]',
        [],
        [["f", {"a": "x\ny"}]],
    ),
    "both read a plain call": (
        "pythonic",
        '[f(a="물", b=[1, None]), g()]',
        [["f", {"a": "물", "b": [1, None]}], ["g", {}]],
        [["f", {"a": "물", "b": [1, None]}], ["g", {}]],
    ),
}


@pytest.fixture(scope="module")
def vllm_found() -> dict[str, list[Any]]:
    written = json.dumps([[dialect, raw] for dialect, raw, _, _ in CASES.values()])
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, input=written, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.rpartition("FOUND")[2]), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_where_vllm_loses_something_ours_does_not(
    case: str, vllm_found: dict[str, list[Any]]
) -> None:
    dialect, raw, vllms, ours = CASES[case]
    result = DIALECTS[dialect].parse(raw, [{"name": "f"}])
    assert [[call.name, call.args] for call in result.calls] == ours
    assert vllm_found[case] == vllms


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_parser_that_a_serve_line_asks_for_is_one_of_vllms(
    family: Family, parsers_of_vllm: frozenset[str]
) -> None:
    options = family.parser_args
    assert options[options.index("--tool-call-parser") + 1] in parsers_of_vllm


@pytest.fixture(scope="module")
def parsers_of_vllm() -> frozenset[str]:
    script = "from vllm.tool_parsers import ToolParserManager as m; print(*m.lazy_parsers)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    return frozenset(done.stdout.split())
