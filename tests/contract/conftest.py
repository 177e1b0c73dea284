"""The contract: what users rely on, checked through public names and the command line.

Nothing here pins a layout, a private name or the wording of a message. The files beside the tests
are recorded with `pytest tests/contract --record-contract`; a change of them is a change of the
contract and belongs into the changelog. The laws of matching, gate, statistics and dialects are
property tests of their rooms: `tests/harness/scoring/test_matching_laws.py`,
`tests/notebook/test_gate_laws.py`, `tests/harness/figures`, `tests/laws`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "datasets"

Recorded = Callable[[str, Any], Any]
Lhkit = Callable[..., tuple[int, str]]


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """Return what is recorded under a name; with --record-contract, record the present value.

    A part of what is recorded is only compared.
    """

    def compare_with(name: str, present: Any, *, is_part: bool = False) -> Any:
        file = HERE / "recorded" / f"{name}.json"
        if request.config.getoption("--record-contract") and not is_part:
            file.parent.mkdir(exist_ok=True)
            text = json.dumps(present, ensure_ascii=False, indent=1, sort_keys=True)
            file.write_text(f"{text}\n", encoding="utf-8")
        return json.loads(file.read_text(encoding="utf-8"))

    return compare_with


@pytest.fixture
def lhkit_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Lhkit:
    """Return a function that runs `lhkit ARGS` in this process: its exit code and its output."""
    from lhkit.__main__ import main

    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LHKIT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def run(*args: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["lhkit", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), capfd.readouterr().out

    return run
