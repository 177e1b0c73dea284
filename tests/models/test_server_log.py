from pathlib import Path

from lhkit.models.serving.server import last_error_line, last_stage
from tests.rows import check_rows

DEATHS = {
    "an engine's own error, not the hearsay after it": (
        (
            "(EngineCore pid=7) ERROR 11-21 22:43:05 [core.py:842] ValueError: To serve at least\n"
            "(APIServer pid=6) RuntimeError: Engine core initialization failed. See root cause\n"
        ),
        "ValueError: To serve at least",
    ),
    "a wrong argument": (
        "usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --no-such\n",
        "api_server.py: error: unrecognized arguments: --no-such",
    ),
    "a validation error's second line": (
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, User-specified max_model_len is too long\n"
            "    For further information visit https://errors.pydantic.dev\n"
        ),
        "Value error, User-specified max_model_len is too long",
    ),
    "the last line where nothing looks like an error": ("hello\nKilled\n\n", "Killed"),
    "an empty log": ("", "the log is empty"),
}


@check_rows("case", DEATHS)
def test_last_error_line(case: str, tmp_path: Path) -> None:
    text, expected = DEATHS[case]
    log = tmp_path / "log"
    log.write_text(text)
    assert last_error_line(log) == expected


def test_last_stage(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_stage(log) == "loading libraries"
    log.write_text("INFO Resolved architecture: X\nINFO Starting to load model X\nINFO other\n")
    assert last_stage(log) == "loading weights"


def test_last_error_line_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("KeyError: early\n" + "x" * 300_000 + "\nValueError: " + "y" * 1000)
    assert last_error_line(log).startswith("ValueError: y")
    assert len(last_error_line(log)) == 300
