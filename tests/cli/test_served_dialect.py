"""What is sent and said if a server's model is of another family than the dialect."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import lhkit.cli
from lhkit.base.errors import UsageError
from lhkit.cli.doctor import DoctorOptions, examine
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluate import evaluate
from lhkit.cli.prompt import PromptOptions, show_prompt
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.notebook import ChatPanel
from lhkit.settings import Settings
from tests.models.fake_vllm import (
    Behaviour,
    FakeVllm,
    chat_call,
    chat_completion,
    completion,
    models,
    streams,
)
from tests.models.templates_of_tests import FUNCTIONGEMMA, GEMMA4

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.anyio

SCENARIO = """
- id: hello
  ac: AC-12
  locale: en
  world: {now: "2026-06-15T09:00:00+09:00"}
  turns: [{user: hello, reply: {contains_any: [right]}}]
"""
NATIVE_CALL = "<start_function_call>call:list_habits{}<end_function_call>"
SAYS_CALL = streams(completion([NATIVE_CALL]))
SAYS = streams(completion(["right"]))
CHATS = streams(chat_completion([{"content": "right"}], tokens=2))
CALLS = streams(chat_completion([{"tool_calls": [chat_call(0, "get_time", "{}")]}], tokens=9))


async def evaluated(
    folder: Path,
    name: str,
    *behaviours: Behaviour,
    locale: str = "en",
    **options: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Evaluate one scenario; return the requests, and the manifest."""
    file = folder / "hello.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    settings = Settings(locale=locale, base_url=None, cache_dir=folder / "cache")
    async with FakeVllm(*behaviours, routes={"/v1/models": models(name)}) as server:
        given = {"paths": (file,), "base_url": server.base_url, "name": "run", **options}
        await evaluate(EvalOptions(runs_dir=folder / "runs", **given), settings)
        bodies = server.bodies
    return bodies, json.loads((folder / "runs/run/manifest.json").read_bytes())


@pytest.mark.parametrize(
    ("name", "dialect", "starts"),
    [
        ("google/functiongemma-270m-it", "functiongemma", "<bos><start_of_turn>developer\n"),
        ("google/gemma-4-E2B-it", "gemma4", "<bos><|turn>system\n"),
        ("gemma-3-1b-it", "json", "<bos><start_of_turn>user\n"),
    ],
)
async def test_eval_without_dialect_takes_that_of_the_family(
    name: str, dialect: str, starts: str, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (body,), manifest = await evaluated(tmp_path, name, SAYS)
    assert body["prompt"].startswith(starts)
    assert manifest["models"][0]["dialect"] == dialect
    assert manifest["invocations"][0]["remarks"] == []
    assert "Warning" not in capsys.readouterr().out


@pytest.mark.longer
@pytest.mark.parametrize(
    ("name", "text"), [("gemma-4-E2B-it", GEMMA4), ("functiongemma-270m-it", FUNCTIONGEMMA)]
)
async def test_eval_records_hash_of_template(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "chat_template.jinja"
    file.write_text(text, encoding="utf-8")
    (body,), manifest = await evaluated(tmp_path, name, SAYS, chat_template=file)
    (model,) = manifest["models"]
    assert model["template_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert body["prompt"].count("<bos>") == 1


@pytest.mark.parametrize(
    ("locale", "sentence"),
    [
        (
            "en",
            "none of 1 model messages contains a tool call. functiongemma-270m is of the family",
        ),
        ("ko", "모델 메시지 1개 가운데 도구 호출이 하나도 없습니다. functiongemma-270m은(는)"),
    ],
)
async def test_eval_with_unfit_dialect_warns_in_terminal_record_and_report(
    locale: str, sentence: str, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.md"
    (body,), manifest = await evaluated(
        tmp_path,
        "functiongemma-270m",
        SAYS_CALL,
        locale=locale,
        dialect="json",
        markdown=report,
    )
    assert body["prompt"].startswith("<bos><start_of_turn>user\n")
    (remark,) = manifest["invocations"][0]["remarks"]
    assert "FunctionGemma, which does not know the dialect json" in remark
    printed = " ".join(capsys.readouterr().out.split())
    for text in (printed, report.read_text(encoding="utf-8")):
        assert sentence in text
        assert "functiongemma" in text.partition(sentence)[2]
    unread = {"en": "1 of 1 model messages contain text", "ko": "1개 가운데 1개에 functiongemma"}
    assert unread[locale] in printed


async def test_eval_of_unknown_model_whose_server_parses_calls_uses_openai(
    tmp_path: Path,
) -> None:
    (probe, body), manifest = await evaluated(tmp_path, "qwen3-4b", CALLS, CHATS)
    assert [tool["function"]["name"] for tool in probe["tools"]] == ["get_time"]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert manifest["models"][0]["dialect"] == "openai"


async def test_eval_of_unknown_model_that_only_chats_names_the_choices(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose a format with --dialect: functiongemma, gemma4"):
        await evaluated(tmp_path, "qwen3-4b", CHATS, CHATS)


async def test_eval_refuses_constraint_that_only_the_server_shows_to_be_invalid(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="functiongemma cannot be constrained"):
        await evaluated(tmp_path, "functiongemma-270m", constraint="required")


@pytest.mark.parametrize(
    ("name", "behaviours", "line"),
    [
        ("functiongemma-270m", [SAYS, SAYS], "functiongemma fits the family FunctionGemma"),
        ("qwen3-4b", [CHATS, CHATS], "qwen3-4b is of no known model family"),
    ],
)
async def test_doctor_checks_dialect_of_family(
    name: str, behaviours: list[Behaviour], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = [streams(chat_completion([{"content": "x"}], tokens=1))] * 4
    async with FakeVllm(*behaviours, *refused, routes={"/v1/models": models(name)}) as server:
        await examine(DoctorOptions(base_url=server.base_url), Settings(locale="en"))
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("locale", "sentence"),
    [
        ("en", "does not know the dialect json: leave --dialect out, or give gemma4."),
        ("ko", "Gemma 4 계열이라 호출 형식 json을(를) 모릅니다."),
    ],
)
async def test_panel_shows_that_dialect_does_not_fit(
    locale: str, sentence: str, tmp_path: Path
) -> None:
    settings = Settings(config_dir=tmp_path, base_url=None)
    texts = {}
    for dialect in ("json", None):
        async with FakeVllm(routes={"/v1/models": models("gemma-4-E2B-it")}) as server:
            model = await connect(Endpoint(base_url=server.base_url, dialect=dialect))
            panel = ChatPanel(model=model, locale=locale, opt_in=True, settings=settings)
            texts[dialect] = [getattr(item, "text", "") for item in panel.state.items]
            panel.close()
            await model.aclose()
    assert sum(sentence in text for text in texts["json"]) == 1
    assert not any(sentence in text for text in texts[None])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "functiongemma-270m",
            ["--lhkit-dialect=json"],
            "lhkit: Warning: none of 3 model messages contains a tool call.",
        ),
        ("functiongemma-270m", [], ""),
        ("qwen3-4b", [], "qwen3-4b is of no known model family"),
    ],
)
def test_plugin_says_that_dialect_does_not_fit(
    name: str,
    options: list[str],
    expected: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Path(lhkit.cli.__file__).parent / "init" / "project"
    for file in ("tools.py", "shopping.scenario.yaml"):
        shutil.copy(project / file, pytester.path)
    pytester.makeini("[pytest]")
    for variable in ("HOME", "LHKIT_CACHE_DIR", "LHKIT_CONFIG_DIR", "LHKIT_DATA_DIR"):
        monkeypatch.setenv(variable, str(pytester.path / "home"))
    behaviours = [CHATS] * 6 if name.startswith("qwen") else [SAYS] * 6
    fake = FakeVllm(*behaviours, routes={"/v1/models": models(name)})
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fake) as server:
        given = ("--lhkit-toolset=tools.py:toolset", f"--lhkit-base-url={server.base_url}")
        done = pytester.runpytest_inprocess("-p", "no:nbval", *given, *options)
        bodies = server.bodies
    printed = done.stdout.str() + done.stderr.str()  # a refusal at the start is an error of usage
    assert expected in printed, printed
    warnings = [line for line in printed.splitlines() if line.startswith("lhkit: ")]
    assert len(warnings) == len({*warnings})
    if not expected:
        assert "lhkit: Warning" not in printed
        assert all("<start_of_turn>developer" in body["prompt"] for body in bodies)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("model", "starts"),
    [
        (None, "<bos><start_of_turn>user\n"),
        ("google/functiongemma-270m-it", "<bos><start_of_turn>developer\n"),
        ("gemma-4-E2B-it", "<bos><|turn>system\n"),
    ],
)
async def test_prompt_takes_dialect_of_family(
    model: str | None, starts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = PromptOptions(model=model, as_json=True)
    settings = Settings(locale="en", base_url=None, cache_dir=tmp_path)  # no tokenizer to load
    assert await show_prompt(options, settings) == 0
    assert json.loads(capsys.readouterr().out)["prompt"].startswith(starts)


async def test_prompt_of_unknown_model_names_the_choice() -> None:
    with pytest.raises(UsageError, match=r"no known model family\. Choose a format with --dialect"):
        await show_prompt(PromptOptions(model="qwen3-4b"), Settings(base_url=None))
