"""`lhkit doctor` reports problems of a server with their fixes."""

from pathlib import Path
from typing import Any

import pytest

from lhkit import embedded
from lhkit.base.errors import UsageError
from lhkit.cli import doctor
from lhkit.cli.doctor import DoctorOptions, examine
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.models.runtimes import Runtime
from lhkit.models.weights import weights
from lhkit.settings import Settings
from tests.models.fake_llama_cpp import FakeLlamaCpp, native
from tests.models.fake_vllm import (
    FakeVllm,
    answers,
    chat_call,
    chat_completion,
    completion,
    models,
    streams,
)

pytestmark = pytest.mark.anyio

BEGUN = streams(completion(['{"name": "', "add"], reason="length"))
COLD = streams(completion(["네"], cached_tokens=0))
WARM = streams(completion(["네"], cached_tokens=640))
UNTOLD = streams(completion(["네"], cached_tokens=None))
NO_PARSER = answers(
    400,
    '{"error":{"message":"\\"auto\\" tool choice requires --enable-auto-tool-choice and '
    '--tool-call-parser to be set","code":400}}',
)
PARSED = streams(chat_completion([{"content": "네"}], tokens=3))
COUNTED = streams(chat_completion([{"content": "1, 2, 3"}], reason="length", token_ids=False))
ELSEWHERE = {"/version": answers(404, "")}
OUT_OF_MEMORY = '{"error": {"message": "out of memory"}}'
CALLED = streams(chat_completion([{"tool_calls": [chat_call(0, "add_habit", "{")]}]))
WELL = [COLD, WARM, BEGUN, NO_PARSER]


async def doctor_output(
    capsys: pytest.CaptureFixture[str], behaviours: Any, dialect: str = "json", **fake: Any
) -> tuple[int, str]:
    async with FakeVllm(*behaviours, **fake) as server:
        options = DoctorOptions(base_url=server.base_url, dialect=dialect)
        code = await examine(options, Settings(locale="en"))
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("served", "family"),
    [
        ("gemma-3-4b-it", "Gemma 3."),
        ("gemma", "Gemma 3 (text only)."),
        ("gemma-base", "Gemma 3 (text only)."),
    ],
)
async def test_doctor_passes_healthy_server(
    served: str, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = await doctor_output(capsys, WELL, routes={"/v1/models": models(served)})
    assert code == 0
    assert "✗" not in text
    assert f"The dialect json fits the family {family}" in text
    assert "took 640 of" in text


async def test_doctor_checks_llama_cpp_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A server without constraints is reported, and is not a failed check."""
    async with FakeLlamaCpp(streams(native(["네"])), streams(native(["네"])), NO_PARSER) as server:
        code = await examine(DoctorOptions(base_url=server.base_url), Settings(locale="en"))
    text = capsys.readouterr().out
    assert code == 0
    assert "llama.cpp b11549-abc, Q8_0" in text
    assert "The prompt has exactly one <bos>." in text
    assert "took 3 of 4 tokens from it" in text
    assert "Give --constrain off" in text


@pytest.mark.parametrize(
    ("model", "folder", "sentence"),
    [
        (None, "of-gemma", "The weights are not prepared yet"),
        ("gemma", "of-gemma", "The weights are not prepared yet"),
        ("gemma-base", "of-gemma-base", "The weights are prepared"),
    ],
)
async def test_doctor_checks_weights_of_requested_model(
    model: str | None,
    folder: str,
    sentence: str,
    *,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "embedded_folder", lambda name, _: tmp_path / f"of-{name}")
    (tmp_path / "of-gemma-base").mkdir()
    settings = Settings(locale="en", cache_dir=tmp_path, base_url=None, runtime="vllm")
    assert await examine(DoctorOptions(model=model), settings) == ExitCode.INFRASTRUCTURE
    lines = capsys.readouterr().out.splitlines()
    assert any(sentence in line and line.endswith(folder) for line in lines)
    assert any("No model server is running" in line for line in lines)


async def test_doctor_with_llama_cpp_needs_file_and_no_vllm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(locale="en", cache_dir=tmp_path, base_url=None, runtime="llama.cpp")
    await examine(DoctorOptions(), settings)
    output = capsys.readouterr().out
    assert "xllamacpp" in output
    assert "gemma-Q4_K_M.gguf" in output
    assert not any(name in output for name in ("vllm ", "torch", "transformers", "float"))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("installed", "environment", "runtime", "checked", "is_advised"),
    [
        ({"xllamacpp", "gguf"}, {}, None, "llama.cpp", True),
        ({"xllamacpp", "gguf"}, {}, "llama.cpp", "llama.cpp", False),
        ({"xllamacpp", "gguf"}, {}, "vllm", "vllm", False),
        ({"xllamacpp", "gguf"}, {"LHKIT_RUNTIME": "vllm"}, None, "vllm", False),
        ({"xllamacpp"}, {}, None, "llama.cpp", True),
        ({"vllm", "torch", "xllamacpp"}, {}, None, "vllm", False),
        ({"vllm", "torch", "xllamacpp"}, {"LHKIT_RUNTIME": "llama.cpp"}, None, "llama.cpp", False),
        ({"vllm", "torch", "xllamacpp"}, {}, "llama.cpp", "llama.cpp", False),
        ({"torch", "transformers"}, {}, None, "vllm", False),
        (set(), {}, None, "vllm", False),
    ],
)
async def test_doctor_checks_the_runtime_that_is_installed(
    installed: set[str],
    environment: dict[str, str],
    runtime: Runtime | None,
    checked: str,
    *,
    is_advised: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = dict.fromkeys(installed, "1.2.3")
    monkeypatch.setattr(
        doctor,
        "installed_version",
        lambda *names: next(filter(None, map(versions.get, names)), None),
    )
    monkeypatch.delenv("LHKIT_RUNTIME", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for locale, advice in (("en", "give --runtime llama.cpp"), ("ko", "--runtime llama.cpp를")):
        settings = Settings(locale=locale, cache_dir=tmp_path, base_url=None)
        await examine(DoctorOptions(runtime=runtime), settings)
        output = capsys.readouterr().out
        assert ("torch" in output) == (checked == "vllm")
        assert ("gguf" in output) == (checked == "llama.cpp")
        assert (advice in output) == is_advised
        assert not is_advised or "✗ vllm" not in output


async def test_doctor_runtime_does_not_go_with_an_address(tmp_path: Path) -> None:
    options = DoctorOptions(runtime="llama.cpp", base_url="http://127.0.0.1:9")
    with pytest.raises(UsageError, match="--runtime is for a model that lhkit serves itself"):
        await examine(options, Settings(locale="en", cache_dir=tmp_path))


async def test_doctor_reports_missing_adapter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "SHIPPED_ADAPTER", tmp_path)
    settings = Settings(locale="en", cache_dir=tmp_path, base_url=None, runtime="vllm")
    assert await examine(DoctorOptions(), settings) == ExitCode.INFRASTRUCTURE
    issues = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert any("it needs adapter_config.json" in line for line in issues)


@pytest.mark.parametrize(
    ("behaviours", "served", "sentence"),
    [
        ([COLD, COLD, BEGUN, PARSED], "gemma-3-4b-it", "--block-size 32"),
        ([UNTOLD, UNTOLD, BEGUN, PARSED], "gemma-3-4b-it", "--enable-prompt-tokens-details"),
        ([COLD, WARM, WARM, PARSED], "gemma-3-4b-it", "ignores the constraint"),
        (WELL, "functiongemma-270m-it", "give --dialect functiongemma"),
    ],
)
async def test_doctor_advises_on_failed_checks(
    behaviours: Any, served: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = await doctor_output(capsys, behaviours, routes={"/v1/models": models(served)})
    assert code == ExitCode.INFRASTRUCTURE
    assert any(line.startswith("✗") and sentence in line for line in text.splitlines())


async def test_doctor_reports_missing_server_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = DoctorOptions(base_url="http://127.0.0.1:9")
    assert await examine(options, Settings(locale="en")) == ExitCode.INFRASTRUCTURE
    assert "nothing answers at http://127.0.0.1:9" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chat", "sentence"),
    [
        (PARSED, "--dialect openai can be used too"),
        (
            NO_PARSER,
            "which json does not need; for --dialect openai start it as `lhkit serve MODEL ",
        ),
    ],
)
async def test_doctor_reports_server_parser(
    chat: Any, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = await doctor_output(capsys, [COLD, WARM, BEGUN, chat])
    assert code == 0
    assert any(line.startswith("✓") and sentence in line for line in text.splitlines())


async def test_doctor_passes_openai_with_server_parser(
    capsys: pytest.CaptureFixture[str],
) -> None:
    behaviours = [PARSED, PARSED, COUNTED, CALLED]
    code, text = await doctor_output(capsys, behaviours, "openai", routes=ELSEWHERE)
    assert code == 0
    assert "✗" not in text
    assert "It is not vLLM" in text
    assert "--constrain required can be used" in text
    assert "unknown server" in text


async def test_doctor_names_an_unknown_server_in_the_language_of_the_user(
    capsys: pytest.CaptureFixture[str],
) -> None:
    behaviours = [PARSED, PARSED, COUNTED, CALLED]
    async with FakeVllm(*behaviours, routes=ELSEWHERE) as server:
        options = DoctorOptions(base_url=server.base_url, dialect="openai")
        await examine(options, Settings(locale="ko"))
    text = capsys.readouterr().out
    assert "모르는 서버" in text
    assert "unknown server" not in text


def counted(until: int, reason: str = "stop", tokens: int | None = None) -> Any:
    deltas = [{"content": f"{number} "} for number in range(1, until + 1)]
    return streams(chat_completion(deltas, reason=reason, tokens=tokens, token_ids=False))


async def test_doctor_says_that_tokens_of_a_prompt_are_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    untold = streams(chat_completion([{"content": "네"}], tokens=3, token_ids=False))
    behaviours = [untold, untold, CALLED]
    _, text = await doctor_output(capsys, behaviours, "openai")  # a vLLM
    assert "✓ The server does not show the tokens of a prompt" in text
    assert "0 <bos>" not in text


async def test_doctor_passes_openai_whose_server_ignores_tool_choice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    behaviours = [PARSED, PARSED, COUNTED, PARSED]
    code, text = await doctor_output(capsys, behaviours, "openai", routes=ELSEWHERE)
    assert code == 0
    assert "✓ The server does not obey `tool_choice: required`: leave --constrain off" in text


@pytest.mark.parametrize(
    ("answer", "mark", "sentence"),
    [
        (counted(6, "length"), "✓", "keeps to the output limit"),
        (counted(6, "stop", 6), "✓", "keeps to the output limit"),  # LiteRT-LM
        (counted(6, "stop", 7), "✓", "keeps to the output limit"),
        (counted(50, "stop", 100), "✗", "ignores the output limit"),
        (counted(50), "✗", "ignores the output limit"),
        (counted(50, "length", 6), "✗", "ignores the output limit"),
        (counted(0, "stop", 90), "✗", "ignores the output limit"),  # it only thought
        (counted(2, "stop", 3), "✓", "cannot be said"),
        (counted(2), "✓", "cannot be said"),
        (answers(500, OUT_OF_MEMORY), "✗", "out of memory"),
    ],
)
async def test_doctor_checks_the_output_limit(
    answer: Any, mark: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    behaviours = [PARSED, PARSED, answer, CALLED]
    code, text = await doctor_output(capsys, behaviours, "openai", routes=ELSEWHERE)
    assert [line[0] for line in text.splitlines() if sentence in line] == [mark]
    assert (code == 0) == (mark == "✓")
    assert "does not show the prompt that it renders" in text


async def test_doctor_advises_on_openai_without_server_parser(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text = await doctor_output(capsys, [NO_PARSER, NO_PARSER], "openai")
    assert code == ExitCode.INFRASTRUCTURE
    issues = [line for line in text.splitlines() if line.startswith("✗")]
    assert issues
    assert all(
        "`lhkit serve MODEL --server-parser`, or leave --dialect openai out" in f for f in issues
    )
