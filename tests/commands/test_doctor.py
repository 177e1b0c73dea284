"""The doctor says what is wrong with a server, and what to do."""

from typing import Any

import pytest

from lhkit.commands.doctor import EXIT_UNWELL, DoctorOptions, examine
from lhkit.settings import Settings
from tests.models.fake_vllm import FakeVllm, completion, models, streams

BEGUN = streams(completion(['{"name": "', "add"], reason="length"))
COLD = streams(completion(["네"], cached_tokens=0))
WARM = streams(completion(["네"], cached_tokens=640))
UNTOLD = streams(completion(["네"], cached_tokens=None))
WELL = [COLD, WARM, BEGUN]


async def said(capsys: pytest.CaptureFixture[str], behaviours: Any, **fake: Any) -> tuple[int, str]:
    async with FakeVllm(*behaviours, **fake) as server:
        options = DoctorOptions(base_url=server.base_url)
        code = await examine(options, Settings(locale="en"))
    return code, capsys.readouterr().out


@pytest.mark.anyio
@pytest.mark.promise("serve.doctor")
async def test_a_server_that_is_well_has_only_good_findings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text = await said(capsys, WELL, routes={"/v1/models": models("gemma-3-4b-it")})
    assert code == 0
    assert "✗" not in text
    assert "The dialect json fits the family Gemma 3." in text
    assert "took 640 of" in text


@pytest.mark.anyio
@pytest.mark.promise("serve.doctor")
@pytest.mark.parametrize(
    ("behaviours", "served", "sentence"),
    [
        ([COLD, COLD, BEGUN], "gemma-3-4b-it", "--block-size 32"),
        ([UNTOLD, UNTOLD, BEGUN], "gemma-3-4b-it", "--enable-prompt-tokens-details"),
        ([COLD, WARM, WARM], "gemma-3-4b-it", "does not obey the constraint"),
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
