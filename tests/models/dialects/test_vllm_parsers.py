"""Parse what vLLM's own parsers lose, which is why parsing happens in the client.

They are run at night, because vLLM is pinned, in a process of their own, because importing vLLM
takes a while, and need no model: the tokenizer is only asked which special tokens there are. A test
here that fails after an update of vLLM means that a fault was fixed: then check what we parse.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from lhkit.models.dialects import DIALECTS
from lhkit.models.families import FAMILIES, Family
from tests.rows import check_rows

TOOL = {
    "name": "f",
    "parameters": {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "o": {"type": "object"}},
    },
}

SCRIPT = """
import json, sys
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.functiongemma_tool_parser import FunctionGemmaToolParser
from vllm.tool_parsers.gemma4_engine_tool_parser import Gemma4EngineToolParser
from vllm.tool_parsers.pythonic_tool_parser import PythonicToolParser

SPECIAL = ["<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", '<|"|>']

class Tokenizer:
    def get_vocab(self):
        return {token: number for number, token in enumerate(SPECIAL)}

kinds = {
    "functiongemma": FunctionGemmaToolParser,
    "gemma4": Gemma4EngineToolParser,
    "pythonic": PythonicToolParser,
}
asked = json.load(sys.stdin)
request = ChatCompletionRequest(
    messages=[{"role": "user", "content": "-"}],
    tools=[{"type": "function", "function": asked["tool"]}],
)
found = []
for dialect, raw in asked["written"]:
    parsed = kinds[dialect](Tokenizer(), request.tools).extract_tool_calls(raw, request)
    calls = [[c.function.name, json.loads(c.function.arguments)] for c in parsed.tool_calls]
    found.append(calls)
print("FOUND" + json.dumps([found, list(ToolParserManager.lazy_parsers)]))
"""

E = "<escape>"
OPEN, CLOSE = "<start_function_call>call:", "<end_function_call>"
Q = '<|"|>'
OPEN4, CLOSE4 = "<|tool_call>call:", "<tool_call|>"

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
    "pythonic refuses a fence": ("pythonic", "```tool_code\n[f(a=1)]\n```", [], [["f", {"a": 1}]]),
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
    "gemma4 makes text of a number that its schema does not name": (
        "gemma4",
        f"{OPEN4}f{{a:5}}{CLOSE4}",
        [["f", {"a": "5"}]],
        [["f", {"a": 5}]],
    ),
    "gemma4 makes text of the members of an object": (
        "gemma4",
        f"{OPEN4}f{{o:{{x:1,y:true}}}}{CLOSE4}",
        [["f", {"o": {"x": "1", "y": "true"}}]],
        [["f", {"o": {"x": 1, "y": True}}]],
    ),
    "gemma4 makes a number of a text": (
        "gemma4",
        f"{OPEN4}f{{n:{Q}5{Q}}}{CLOSE4}",
        [["f", {"n": 5}]],
        [["f", {"n": "5"}]],
    ),
    "gemma4 loses a string that holds the end of a call": (
        "gemma4",
        f"{OPEN4}f{{s:{Q}a{CLOSE4}b{Q}}}{CLOSE4}",
        [["f", {"s": "a"}]],
        [["f", {"s": f"a{CLOSE4}b"}]],
    ),
    "gemma4 reports a cut call as complete": (
        "gemma4",
        f"{OPEN4}f{{n:1,s:{Q}서",
        [["f", {"n": 1, "s": "서"}]],
        [],
    ),
    "gemma4: both read a plain call": (
        "gemma4",
        f"네 {OPEN4}f{{n:5,s:{Q}010{Q}}}{CLOSE4}{OPEN4}log-water{{}}{CLOSE4}",
        [["f", {"n": 5, "s": "010"}], ["log-water", {}]],
        [["f", {"n": 5, "s": "010"}], ["log-water", {}]],
    ),
    "both read a plain call": (
        "pythonic",
        '[f(a="물", b=[1, None]), g()]',
        [["f", {"a": "물", "b": [1, None]}], ["g", {}]],
        [["f", {"a": "물", "b": [1, None]}], ["g", {}]],
    ),
}


@pytest.fixture(scope="module")
def vllm_found() -> tuple[dict[str, list[Any]], list[str]]:
    """Return the calls of each case that vLLM's parsers find, and the names of its parsers."""
    cases = [[dialect, raw] for dialect, raw, _, _ in CASES.values()]
    written = json.dumps({"tool": TOOL, "written": cases})
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, input=written, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    parsed, parsers = json.loads(done.stdout.rpartition("FOUND")[2])
    return dict(zip(CASES, parsed, strict=True)), parsers


@check_rows("case", CASES)
def test_parse_keeps_what_vllm_parsers_lose(case: str) -> None:
    dialect, raw, _, ours = CASES[case]
    result = DIALECTS[dialect].parse(raw, [TOOL])
    assert [[call.name, call.args] for call in result.calls] == ours


@pytest.mark.nightly
@check_rows("case", CASES)
def test_vllm_parsers_still_lose_it(case: str, vllm_found: tuple[dict[str, Any], Any]) -> None:
    assert vllm_found[0][case] == CASES[case][2]


@pytest.mark.nightly
@check_rows("family", FAMILIES, ids=lambda family: family.name)
def test_serve_line_names_a_parser_of_vllm(
    family: Family, vllm_found: tuple[Any, list[str]]
) -> None:
    options = family.parser_args
    assert options[options.index("--tool-call-parser") + 1] in vllm_found[1]
