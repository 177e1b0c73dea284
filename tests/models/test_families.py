"""Gemma families by name, and the command lines that serve them."""

import json
from pathlib import Path

import pytest

from lhkit.base.errors import UsageError
from lhkit.models.dialects import DIALECTS
from lhkit.models.families import FAMILIES, Family, family_of
from lhkit.models.serving.vllm_server import Device, serve_command
from tests.rows import check_rows


@check_rows(
    ("model", "family", "dialect"),
    [
        ("google/gemma-3-4b-it", "Gemma 3", "json"),
        ("google/gemma-3-27b-it", "Gemma 3", "json"),
        ("google/gemma-3-1b-it", "Gemma 3 (text only)", "json"),
        ("google/gemma-3-270m", "Gemma 3 (text only)", "json"),
        ("gemma", "Gemma 3 (text only)", "json"),
        ("gemma-base", "Gemma 3 (text only)", "json"),
        ("google/gemma-3n-E2B-it", "Gemma 3n", "json"),
        ("google/functiongemma-270m-it", "FunctionGemma", "functiongemma"),
        ("google/gemma-4-E2B-it", "Gemma 4", "gemma4"),
        ("Gemma4-31B", "Gemma 4", "gemma4"),
    ],
)
def test_family_of_known_names(model: str, family: str, dialect: str) -> None:
    known = family_of(model)
    assert known is not None
    assert (known.name, known.dialect) == (family, dialect)


@pytest.mark.parametrize("name", ["Qwen3-4B", "my-gemma", "gemma-2-9b"])
def test_family_of_other_names_is_none(name: str) -> None:
    assert family_of(name) is None


def test_serve_command_for_a_gpu() -> None:
    line = " ".join(serve_command("google/gemma-3-4b-it", "gpu"))
    assert line == (
        "vllm serve google/gemma-3-4b-it --structured-outputs-config "
        '{"backend":"guidance","disable_any_whitespace":true} '
        "--host 127.0.0.1 --max-model-len 8192 "
        "--generation-config vllm "
        "--enable-prompt-tokens-details --enable-per-request-metrics "
        "--enable-force-include-usage --stream-interval 4 --max-num-seqs 256 "
        "--language-model-only"
    )


def test_serve_command_for_a_cpu() -> None:
    line = serve_command("google/gemma-3-1b-it", "cpu")
    assert line[:3] == ("env", "VLLM_CPU_KVCACHE_SPACE=4", "python")
    assert line[line.index("--model") + 1] == "google/gemma-3-1b-it"
    assert line[line.index("--block-size") + 1] == "32"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_serve_command_has_a_dtype_unless_auto(device: Device) -> None:
    line = serve_command("google/gemma-3-1b-it", device, dtype="float32")
    assert line[line.index("--dtype") + 1] == "float32"
    assert "--dtype" not in serve_command("google/gemma-3-1b-it", device)


@check_rows("model", ["gemma", "gemma-3-4b", "gemma-3n", "functiongemma", "gemma-4"])
@check_rows("is_parsing", [False, True])
def test_serve_command_has_the_guidance_backend_for_every_family(
    model: str, is_parsing: bool
) -> None:
    line = serve_command(model, "cpu", server_parser=is_parsing)
    assert line.count("--structured-outputs-config") == 1
    settings = json.loads(line[line.index("--structured-outputs-config") + 1])
    assert settings == {"backend": "guidance", "disable_any_whitespace": True}


@check_rows("family", FAMILIES, ids=lambda family: family.name)
def test_families_need_no_server_parser(family: Family) -> None:
    assert "parser" not in repr(family.serve_args)
    assert family.server_dialect in DIALECTS


@check_rows(
    ("model", "parser"),
    [
        ("google/gemma-3-4b-it", "pythonic"),
        ("google/gemma-3n-E2B-it", "pythonic"),
        ("google/functiongemma-270m-it", "functiongemma"),
        ("google/gemma-4-E2B-it", "gemma4"),
    ],
)
def test_serve_command_adds_the_server_parser_on_request(model: str, parser: str) -> None:
    line = serve_command(model, "gpu", server_parser=True)
    assert line[line.index("--tool-call-parser") + 1] == parser
    assert "--enable-auto-tool-choice" in line
    assert ("--reasoning-parser" in line) == (parser == "gemma4")
    if parser == "pythonic":
        assert Path(line[line.index("--chat-template") + 1]).is_file()


def test_serve_command_refuses_a_server_parser_for_other_models() -> None:
    with pytest.raises(UsageError, match="family of Qwen3-4B is unknown: leave --server-parser"):
        serve_command("Qwen3-4B", "gpu", server_parser=True)
