"""The doctor says what is wrong with a server, and what to do."""

from pathlib import Path
from typing import Any

import pytest

from lhkit import embedded
from lhkit.cli.doctor import EXIT_UNWELL, DoctorOptions, examine
from lhkit.models import weights
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
CALLED = streams(chat_completion([{"tool_calls": [chat_call(0, "add_habit", "{")]}]))
WELL = [COLD, WARM, BEGUN, NO_PARSER]


async def said(
    capsys: pytest.CaptureFixture[str], behaviours: Any, dialect: str = "json", **fake: Any
) -> tuple[int, str]:
    async with FakeVllm(*behaviours, **fake) as server:
        options = DoctorOptions(base_url=server.base_url, dialect=dialect)
        code = await examine(options, Settings(locale="en"))
    return code, capsys.readouterr().out


@pytest.mark.anyio
async def test_a_server_that_is_well_has_only_good_findings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text = await said(capsys, WELL, routes={"/v1/models": models("gemma-3-4b-it")})
    assert code == 0
    assert "✗" not in text
    assert "The dialect json fits the family Gemma 3." in text
    assert "took 640 of" in text


@pytest.mark.anyio
async def test_a_llama_cpp_server_is_looked_at_as_far_as_it_tells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That it takes no constraint is said, and is no fault of the server."""
    async with FakeLlamaCpp(streams(native(["네"])), streams(native(["네"])), NO_PARSER) as server:
        code = await examine(DoctorOptions(base_url=server.base_url), Settings(locale="en"))
    text = capsys.readouterr().out
    assert code == 0
    assert "llama.cpp b11549-abc, Q8_0" in text
    assert "Exactly one <bos> reaches the model." in text
    assert "took 3 of 4 tokens from it" in text
    assert "Give --constrain off" in text


@pytest.mark.anyio
@pytest.mark.promise("embedded.names")
@pytest.mark.parametrize("served", ["gemma", "gemma-base"])
async def test_the_embedded_models_are_known_by_their_names(
    served: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = await said(capsys, WELL, routes={"/v1/models": models(served)})
    assert code == 0
    assert "The dialect json fits the family Gemma 3 (text only)." in text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "folder", "sentence"),
    [
        (None, "of-gemma", "There are no weights yet"),
        ("gemma", "of-gemma", "There are no weights yet"),
        ("gemma-base", "of-gemma-base", "The weights are there"),
    ],
)
async def test_it_looks_for_the_weights_of_the_model_that_is_asked_for(
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
    settings = Settings(locale="en", cache_dir=tmp_path, base_url=None)
    assert await examine(DoctorOptions(model=model), settings) == EXIT_UNWELL
    lines = capsys.readouterr().out.splitlines()
    assert any(sentence in line and line.endswith(folder) for line in lines)
    assert any("No model server is running" in line for line in lines)


@pytest.mark.anyio
async def test_of_the_light_runtime_it_asks_for_no_vllm_and_for_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(locale="en", cache_dir=tmp_path, base_url=None, runtime="llama.cpp")
    await examine(DoctorOptions(), settings)
    told = capsys.readouterr().out
    assert "xllamacpp" in told
    assert "gemma-Q4_K_M.gguf" in told
    assert not any(name in told for name in ("vllm ", "torch", "transformers", "float"))


@pytest.mark.anyio
async def test_a_missing_adapter_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "SHIPPED_ADAPTER", tmp_path)
    settings = Settings(locale="en", cache_dir=tmp_path, base_url=None)
    assert await examine(DoctorOptions(), settings) == EXIT_UNWELL
    faults = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert any("it needs adapter_config.json" in line for line in faults)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("behaviours", "served", "sentence"),
    [
        ([COLD, COLD, BEGUN, PARSED], "gemma-3-4b-it", "--block-size 32"),
        ([UNTOLD, UNTOLD, BEGUN, PARSED], "gemma-3-4b-it", "--enable-prompt-tokens-details"),
        ([COLD, WARM, WARM, PARSED], "gemma-3-4b-it", "does not obey the constraint"),
        (WELL, "functiongemma-270m-it", "give --dialect functiongemma"),
    ],
)
async def test_each_fault_says_what_to_do(
    behaviours: Any, served: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = await said(capsys, behaviours, routes={"/v1/models": models(served)})
    assert code == EXIT_UNWELL
    assert any(line.startswith("✗") and sentence in line for line in text.splitlines())


@pytest.mark.anyio
async def test_no_server_at_the_address_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    options = DoctorOptions(base_url="http://127.0.0.1:9")
    assert await examine(options, Settings(locale="en")) == EXIT_UNWELL
    assert "nothing answers at http://127.0.0.1:9" in capsys.readouterr().out


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("chat", "sentence"),
    [
        (PARSED, "--dialect openai can be used too"),
        (NO_PARSER, "json does not need it; for --dialect openai start it as `lhkit serve MODEL "),
    ],
)
async def test_it_says_whether_the_server_parses_calls_and_neither_is_a_fault(
    chat: Any, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = await said(capsys, [COLD, WARM, BEGUN, chat])
    assert code == 0
    assert any(line.startswith("✓") and sentence in line for line in text.splitlines())


@pytest.mark.anyio
async def test_openai_is_well_where_the_server_parses_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    elsewhere = {"/version": answers(404, "")}
    code, text = await said(capsys, [PARSED, PARSED, CALLED], "openai", routes=elsewhere)
    assert code == 0
    assert "✗" not in text
    assert "It is not vLLM" in text
    assert "--constrain required can be used" in text


@pytest.mark.anyio
async def test_openai_without_a_parser_of_the_server_says_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text = await said(capsys, [NO_PARSER, NO_PARSER], "openai")
    assert code == EXIT_UNWELL
    faults = [line for line in text.splitlines() if line.startswith("✗")]
    assert faults
    assert all("`lhkit serve MODEL --server-parser`, or give --dialect json" in f for f in faults)
