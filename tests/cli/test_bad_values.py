"""Invalid option values exit with 2 and one sentence, before anything is downloaded or started."""

import asyncio
import re
from collections.abc import Coroutine, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from lhkit.cli.frame.parser import LazyCommand, build_parser
from lhkit.models.serving import vllm_server

pytestmark = pytest.mark.longer

HUGE = "99999999999999999999"
SUITE = 'scenarios = ["one.yaml"]\n{line}\n[arms]\nmodels = ["{model}"]\n'
SCENARIO = """
- id: list-it
  ac: AC-5
  locale: ko
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: 내 습관 보여 줘, expect: {calls: [{tool: list_habits, args: {}}]}}]
"""

EVAL = "eval one.yaml"
A, B = "http://127.0.0.1:1", "http://127.0.0.1:2"

BAD: list[tuple[str, str]] = [
    *(
        (f"{command} {option} {value}", option)
        for command, option, values in (
            (EVAL, "--repeats", f"0 {HUGE} x 1.5"),
            (EVAL, "--concurrency", f"0 {HUGE} x"),
            (EVAL, "--limit", "0 x"),
            (EVAL, "--sample", "0 x"),
            (EVAL, "--seed", "-1 x"),
            (EVAL, "--replicas", f"0 {HUGE} x"),
            (EVAL, "--gpus-per-replica", f"-1 {HUGE} x"),
            (EVAL, "--cpus-per-replica", f"-1 {HUGE} x"),
            (EVAL, "--max-tokens", f"0 {HUGE} x"),
            (EVAL, "--max-attempts", f"0 {HUGE} x"),
            (EVAL, "--fail-under", "-1 101 nan x"),
            (EVAL, "--max-violations", "-1 x"),
            (EVAL, "--max-p95-turn", "-1s 3 nan x"),
            (EVAL, "--max-p95-ttft", "0 x"),
            (EVAL, "--max-prompt-tokens", "0 1.5 x"),
            (EVAL, "--margin", "-1 101 nan x"),
            (EVAL, "--max-regressions", "-1 1.5 nan x"),
            ("compare a b", "--max-regressions", "-1 x"),
            ("mutate one.yaml", "--fail-under", "-1 101 nan x"),
            ("accept run sample", "--turn", f"-1 {HUGE}"),
            ("accept run sample", "--call", f"-1 {HUGE}"),
            ("agreement run --score polite", "--draw", "0 x"),
            ("serve gemma", "--port", "0 65536 x"),
            ("serve google/gemma-3-4b-it --dry-run", "--port", "65536"),
        )
        for value in values.split()
    ),
    # unknown names and invalid texts
    (f"{EVAL} --model gpt", "Invalid embedded model 'gpt'"),
    ("chat --model gpt", "Invalid embedded model 'gpt': choose one of gemma"),
    (f"{EVAL} --model gold --dialect xml", "Invalid dialect 'xml': choose one of"),
    (f"{EVAL} --constrain maybe", "'maybe' is not one of 'off', 'auto'"),
    (f"{EVAL} --dtype int8", "'int8' is not one of"),
    (f"{EVAL} --dtype float32 --base-url http://127.0.0.1:1", "serves already: leave one"),
    (f"{EVAL} --runtime ollama", "'ollama' is not one of 'vllm', 'llama.cpp'"),
    (f"{EVAL} --runtime llama.cpp --base-url http://127.0.0.1:1", "serves already: leave one"),
    (f"{EVAL} --runtime llama.cpp --dtype float32", "--dtype is for vLLM"),
    (f"{EVAL} --runtime llama.cpp --constrain auto", "give --constrain off, or --runtime vllm"),
    ("chat --runtime llama.cpp --dialect openai", "needs a server that parses calls"),
    ("serve --runtime ollama", "'ollama' is not one of"),
    ("serve --runtime llama.cpp --weights folder", "llama.cpp serves files"),
    ("serve gemma --dry-run --dtype auto", "'auto' is not one of"),
    (f"{EVAL} --stress seed={'9' * 5000}", "--stress is invalid: unknown part"),
    (f"{EVAL} --stress distractors={HUGE}", "--stress is invalid: unknown part"),
    (f"{EVAL} --base-url nope", "Invalid server address 'nope'"),
    (f"{EVAL} --base-url http://user:secret@127.0.0.1:9", "it contains a password"),
    (f"{EVAL} --model gold --base-url nope", "Invalid server address 'nope'"),
    (f"{EVAL} --base-url @servers.txt", "Invalid server address '@servers.txt'"),
    (f"{EVAL} --base-url {A},{B}", f"Invalid server address '{A},{B}'"),
    (f"{EVAL} --base-url {A} --base-url {B}", "--base-url is given 2 times: give one address"),
    (f"{EVAL} --base-url={A} --limit 1 --base-url {A}", "start vLLM with --data-parallel-size"),
    (f"eval --base-url {A} one.yaml --base-url={B} --base-url {A}", "--base-url is given 3 times"),
    (f"{EVAL} --base-url {A} --base-url {B} --ray local --replicas 2", "is given 2 times"),
    (f"chat --base-url {A} --base-url {B}", "--ray local --replicas N"),
    (f"doctor --base-url {A} --base-url {A}", "--base-url is given 2 times"),
    (f"{EVAL} --name ../x", "--name '../x' cannot name a folder"),
    (f"{EVAL} --split prod", "Unknown split 'prod': choose one of dev, test, all"),
    (f"{EVAL} --repeats 10000 --limit 1 --split dev", "--split dev takes shipped scenarios"),
    ("eval --toolset x.py:y --split test", "--split test takes shipped scenarios"),
    ("chat --base-url nope", "Invalid server address 'nope'"),
    ("chat --locale fr", "no locale 'fr'"),
    ("doctor --base-url nope", "Invalid server address 'nope'"),
    ("doctor --base-url http://127.0.0.1:9 --dialect xml", "Invalid dialect 'xml'"),
    ("doctor --model gpt", "Invalid embedded model 'gpt'"),
    ("serve gpt", "Invalid embedded model 'gpt'"),
    ("serve gemma --device cpu", "--device is for org/model"),
    ("serve --weights adapter", "adapter has no model"),
    ("serve gemma-base --weights adapter", "--weights is served instead of gemma-base"),
    ("serve --weights adapter --device cpu", "--device is for org/model, not for adapter"),
    ("serve --weights adapter --lora adapter", "--weights is a whole model: leave --lora out"),
    ("serve a.gguf --lora adapter", "--lora needs vLLM"),
    (
        "serve --lora adapter --runtime llama.cpp",
        "--lora needs vLLM: leave --runtime llama.cpp out",
    ),
    ("serve org/m --compile --dry-run", "--compile is for gemma"),
    ("serve nowhere.gguf", "nowhere.gguf does not exist"),
    ("serve nowhere.gguf --dry-run", "nowhere.gguf does not exist"),
    (f"{EVAL} --dialect openai --constrain auto", "Invalid constraint 'auto'"),
    ("eval --split all --limit 1000 --repeats 10000", "more than 100000 samples"),
    (f"{EVAL} --fail-under 0.85", "--fail-under is in percent: for a share of 0.85 give 85"),
    (f"{EVAL} --margin 0.03", "--margin is in percent: for a share of 0.03 give 3"),
    ("serve x --dry-run --device tpu", "'tpu' is not one of 'gpu', 'cpu'"),
    # contradicting options
    (f"{EVAL} --margin 3", "--margin is for a comparison: give --baseline too"),
    (f"{EVAL} --stop-when-decided", "--stop-when-decided is for a comparison: give --baseline"),
    (f"{EVAL} --replicas 2", "--replicas is for --ray: give both, or neither"),
    ("matrix suite.toml --cpus-per-replica 1", "--cpus-per-replica is for --ray"),
    ("serve google/gemma-3-4b-it --runtime llama.cpp", "--runtime is for gemma and gemma-base"),
    ("import openai-messages one.yaml --into new --data one.yaml", "--handlers begin with"),
    # missing files, a folder for a file, a file for a folder
    (f"{EVAL} --runs-dir one.yaml", "--runs-dir"),
    (f"{EVAL} --runs-dir taken --name file", "taken/file"),
    (f"{EVAL} --baseline one.yaml", "is not a run folder"),
    (f"{EVAL} --toolset one.yaml:x", "no module 'one.yaml' here"),
    ("eval nowhere", "nowhere: no scenario file there"),
    ("chat --db folder", "--db"),
    ("mutate one.yaml --survivors folder", "--survivors"),
    ("mutate one.yaml --survivors nowhere.toml", "nowhere.toml"),
    ("report run --html folder", "--html"),
    ("report run --markdown folder", "--markdown"),
    ("report run --junit folder", "--junit"),
    ("report one.yaml", "is not a run folder"),
    ("rescore one.yaml", "is not a run folder"),
    ("rescore run --into one.yaml", "--into"),
    ("accept one.yaml x", "is not a run folder"),
    ("matrix folder", "cannot be read"),
    *(
        (f"{command} --approvals {file}", why)
        for command in (EVAL, f"{EVAL} --model gold", "chat", "mcp serve")
        for file, why in (
            ("nowhere.toml", "The policy nowhere.toml cannot be read"),
            ("folder", "The policy folder cannot be read"),
            ("one.yaml", "The policy one.yaml is not valid TOML"),
            ("suite.toml", "suite.toml is no policy of approvals"),
        )
    ),
    ("mcp serve --measured-client", "--approvals FILE applies to: give the file"),
    ("matrix suite.toml --runs-dir one.yaml", "--runs-dir"),
    # empty values
    *(
        (f"{line} ''", line.split()[-1])
        for line in (
            f"{EVAL} --model",
            "chat --locale",
            "report run --html",
        )
    ),
    ("eval ''", "an argument is empty"),
    ("serve ''", "an argument is empty"),
]


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record downloads, servers and processes instead of starting them."""
    done: list[str] = []

    def refusing(name: str) -> Any:
        async def refuse(*_: object, **__: object) -> None:
            done.append(name)
            raise AssertionError(name)

        return refuse

    monkeypatch.setattr("lhkit.models.weights.weights.ensure_folder", refusing("weights"))
    monkeypatch.setattr(vllm_server.VllmServer, "__aenter__", refusing("server"))
    monkeypatch.setattr("asyncio.create_subprocess_exec", refusing("process"))
    return done


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a scenario, a folder, data and an adapter in it, to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    for name in ("cache", "data", "config"):
        monkeypatch.setenv(f"LHKIT_{name.upper()}_DIR", str(tmp_path / ".own" / name))
    (tmp_path / "one.yaml").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("", encoding="utf-8")
    (tmp_path / "adapter").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / "adapter" / name).write_text("{}", encoding="utf-8")
    line = '{"id":"a","kind":"k","group":"ko","prompt":"p","text":"t","spans":[[0,1]]}\n'
    (tmp_path / "data.jsonl").write_text(line, encoding="utf-8")
    suite = SUITE.format(line="repeats = 1", model="gold")
    (tmp_path / "suite.toml").write_text(suite, encoding="utf-8")
    yield tmp_path
    made = {path.name for path in tmp_path.iterdir()}
    there = {"one.yaml", "folder", "taken", "adapter", "data.jsonl", "suite.toml", ".own"}
    assert made <= there, "something was written"


def run(command: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner() as runner:
        return runner.run(command)


@cache
def parser() -> Any:
    return build_parser(run)


def called(line: str) -> tuple[int, str]:
    words = ["" if word == "''" else word for word in line.split()]
    shown = CliRunner().invoke(parser(), words, env={"COLUMNS": "300"})
    if shown.exception is not None and not isinstance(shown.exception, SystemExit):
        raise shown.exception
    return shown.exit_code, re.sub(r"[│╭╮╰╯─\s]+", " ", shown.stderr)


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize(("line", "expected"), BAD, ids=[line[:60] for line, _ in BAD])
def test_command_refuses_bad_value_before_any_work(
    costly: list[str], line: str, expected: str
) -> None:
    code, stderr = called(line)
    assert (code, costly) == (2, []), stderr
    assert expected.removeprefix("--").replace("-", "_") in stderr.replace("-", "_")
    assert "Traceback" not in stderr


@pytest.mark.usefixtures("costly")
@pytest.mark.parametrize(
    ("line", "model", "expected"),
    [
        (f"repeats = {HUGE}", "gold", "repeats"),
        ("repeats = 0", "gold", "repeats"),
        (f"concurrency = {HUGE}", "gold", "concurrency"),
        (f"max_tokens = {HUGE}", "gold", "max_tokens"),
        ("fail_under = nan", "gold", "fail_under"),
        ("fail_under = inf", "gold", "fail_under"),
        ("fail_under = 0.5", "gold", "fail_under"),
        ("max_violations = -1", "gold", "max_violations"),
        ("halves_seed = -1", "gold", "halves_seed: must be 0 or more"),
        ("halves_seed = 0.5", "gold", "halves_seed: must be a whole number"),
        ("limit = 0", "gold", "limit"),
        ('approvals = "nowhere.toml"', "gold", "nowhere.toml cannot be read"),
        ("approvals = 3", "gold", "approvals"),
        ("", "gpt", "Invalid embedded model 'gpt'"),
        ("", 'gold", {name = "x", base_url = "nope"}, "silent', "Invalid server address 'nope'"),
    ],
)
def test_matrix_refuses_bad_value_in_suite(
    desk: Path, line: str, model: str, expected: str
) -> None:
    text = SUITE.format(line=line, model=model).replace('"{', "{").replace('}"', "}")
    (desk / "suite.toml").write_text(text, encoding="utf-8")
    code, stderr = called("matrix suite.toml")
    assert code == 2, stderr
    assert expected in stderr


def test_bad_values_cover_all_numeric_options() -> None:
    """A new option of a number has to be tried here, too."""
    tried = {line.split()[-2] for line, expected in BAD if expected.startswith("--")}
    numbers = set(_numbers(get_command(parser())))
    assert len(numbers) > 8
    assert numbers <= tried


def _numbers(command: Any) -> Iterator[str]:
    command = command.load() if isinstance(command, LazyCommand) else command
    for each in getattr(command, "commands", {}).values():
        yield from _numbers(each)
    for option in command.params:
        if option.type_descriptor.annotation in {int, float}:
            yield option.opts[0]
