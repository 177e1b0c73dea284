"""The choice of the number type by processor."""

from pathlib import Path

import pytest

from lhkit.base.errors import UsageError
from lhkit.base.locales import available_locales, load_catalog
from lhkit.models.precision import DTYPES, Processor, choose_precision, this_processor
from tests.rows import check_rows

ICE_LAKE = "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu avx512f avx512_vnni\n"
ZEN_4 = "processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16\n"
SAPPHIRE_RAPIDS = "flags\t\t: amx_bf16 amx_tile avx512_bf16\nvmx flags\t: vnmi\n"
NEOVERSE_N1 = "processor\t: 0\nFeatures\t: fp asimd asimdhp\n"
NEOVERSE_V1 = "processor\t: 0\nFeatures\t: fp asimd i8mm bf16\n"


def processor(cpuinfo: str, folder: Path) -> Processor:
    path = folder / "cpuinfo"
    path.write_text(cpuinfo, encoding="utf-8")
    return this_processor(path)


@check_rows(
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
def test_choose_precision_by_common_flags_of_all_cores(
    cpuinfo: str, dtype: str, why: str, tmp_path: Path
) -> None:
    precision = choose_precision(None, processor(cpuinfo, tmp_path))
    assert (precision.dtype, precision.why) == (dtype, why)


def test_choose_precision_without_flags_is_float32(tmp_path: Path) -> None:
    precision = choose_precision(None, this_processor(tmp_path / "no such file"))
    assert (precision.dtype, precision.why) == ("float32", "unknown")
    assert "cannot be read" in precision.describe(load_catalog("en"))


@check_rows("asked", DTYPES)
@check_rows("cpuinfo", [ICE_LAKE, ZEN_4])
def test_choose_precision_takes_an_explicit_dtype(asked: str, cpuinfo: str, tmp_path: Path) -> None:
    assert choose_precision(asked, processor(cpuinfo, tmp_path)).dtype == asked


def test_choose_precision_refuses_an_invalid_dtype() -> None:
    with pytest.raises(UsageError, match=r"^Invalid dtype 'int8': choose one of bfloat16"):
        choose_precision("int8")


@check_rows("locale", available_locales())
@check_rows(("cpuinfo", "expected"), [(ICE_LAKE, "float32"), (ZEN_4, "avx512_bf16")])
def test_precision_describes_type_and_reason(
    locale: str, cpuinfo: str, expected: str, tmp_path: Path
) -> None:
    assert expected in choose_precision(None, processor(cpuinfo, tmp_path)).describe(
        load_catalog(locale)
    )
