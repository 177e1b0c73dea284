"""What a processor is quick in: chosen from its flags, or as asked for."""

from pathlib import Path

import pytest

from lhkit.errors import UsageError
from lhkit.locales import available_locales, load_catalog
from lhkit.precision import DTYPES, Processor, chosen, this_processor

ICE_LAKE = "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu avx512f avx512_vnni\n"
ZEN_4 = "processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16\n"
SAPPHIRE_RAPIDS = "flags\t\t: amx_bf16 amx_tile avx512_bf16\nvmx flags\t: vnmi\n"
NEOVERSE_N1 = "processor\t: 0\nFeatures\t: fp asimd asimdhp\n"
NEOVERSE_V1 = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\n"


def processor(cpuinfo: str, folder: Path) -> Processor:
    path = folder / "cpuinfo"
    path.write_text(cpuinfo, encoding="utf-8")
    return this_processor(path)


@pytest.mark.parametrize(
    ("cpuinfo", "dtype", "why"),
    [
        (ICE_LAKE, "float32", "emulated"),
        (ZEN_4, "bfloat16", "native"),
        (SAPPHIRE_RAPIDS, "bfloat16", "native"),
        (NEOVERSE_N1, "float32", "emulated"),
        (NEOVERSE_V1, "bfloat16", "native"),
        (NEOVERSE_V1 + NEOVERSE_N1, "float32", "emulated"),  # big cores and small ones
        ("", "float32", "unknown"),
        ("processor\t: 0\n", "float32", "unknown"),
    ],
)
def test_bf16_is_chosen_where_all_cores_have_instructions_for_it(
    cpuinfo: str, dtype: str, why: str, tmp_path: Path
) -> None:
    found = chosen(None, processor(cpuinfo, tmp_path))
    assert (found.dtype, found.why) == (dtype, why)


def test_where_the_flags_cannot_be_read_the_type_that_is_quick_everywhere_is_taken(
    tmp_path: Path,
) -> None:
    found = chosen(None, this_processor(tmp_path / "no such file"))
    assert (found.dtype, found.why) == ("float32", "unknown")
    assert "is unknown" in found.words(load_catalog("en"))


@pytest.mark.parametrize("asked", DTYPES)
@pytest.mark.parametrize("cpuinfo", [ICE_LAKE, ZEN_4])
def test_what_is_asked_for_is_taken_on_any_processor(
    asked: str, cpuinfo: str, tmp_path: Path
) -> None:
    assert chosen(asked, processor(cpuinfo, tmp_path)).dtype == asked


def test_another_type_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"^no dtype 'int8': choose one of bfloat16, float32$"):
        chosen("int8")


@pytest.mark.parametrize("locale", available_locales())
@pytest.mark.parametrize(("cpuinfo", "told"), [(ICE_LAKE, "float32"), (ZEN_4, "avx512_bf16")])
def test_people_are_told_what_and_why(locale: str, cpuinfo: str, told: str, tmp_path: Path) -> None:
    assert told in chosen(None, processor(cpuinfo, tmp_path)).words(load_catalog(locale))
