"""Names to families, families to dialects and serve lines."""

import pytest

from lhkit.models.families import FAMILIES, family_of, serve_command


@pytest.mark.parametrize(
    ("model", "family", "dialect"),
    [
        ("google/gemma-3-4b-it", "Gemma 3", "json"),
        ("google/gemma-3-27b-it", "Gemma 3", "json"),
        ("google/gemma-3-1b-it", "Gemma 3 (text only)", "json"),
        ("google/gemma-3-270m", "Gemma 3 (text only)", "json"),
        ("gemma-base", "Gemma 3 (text only)", "json"),
        ("google/gemma-3n-E2B-it", "Gemma 3n", "json"),
        ("google/functiongemma-270m-it", "FunctionGemma", "functiongemma"),
        ("google/gemma-4-E2B-it", "Gemma 4", "gemma4"),
        ("Gemma4-31B", "Gemma 4", "gemma4"),
    ],
)
def test_a_name_tells_its_family_and_dialect(model: str, family: str, dialect: str) -> None:
    found = family_of(model)
    assert found is not None
    assert (found.name, found.dialect) == (family, dialect)


def test_other_names_tell_nothing() -> None:
    assert family_of("Qwen3-4B") is None


@pytest.mark.promise("serve.lines")
def test_a_gpu_line_is_vllm_serve_with_what_records_need() -> None:
    line = " ".join(serve_command("google/gemma-3-4b-it", "gpu"))
    assert line == (
        "vllm serve google/gemma-3-4b-it --host 127.0.0.1 --max-model-len 8192 "
        "--generation-config vllm "
        "--enable-prompt-tokens-details --enable-per-request-metrics "
        "--enable-force-include-usage --language-model-only"
    )


def test_a_cpu_line_shows_cache_hits_and_sets_its_memory() -> None:
    line = serve_command("google/gemma-3-1b-it", "cpu")
    assert line[:3] == ("env", "VLLM_CPU_KVCACHE_SPACE=4", "python")
    assert line[line.index("--model") + 1] == "google/gemma-3-1b-it"
    assert line[line.index("--block-size") + 1] == "32"
    assert line[line.index("--dtype") + 1] == "bfloat16"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_family_asks_for_a_parser_of_the_server(family: object) -> None:
    assert "parser" not in repr(family)
