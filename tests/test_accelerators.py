"""Graphics cards: what `nvidia-smi` prints, and machines without it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lhkit.base import accelerators as module
from lhkit.base.accelerators import Accelerator, accelerators, card_names, parse_cards
from lhkit.base.process import hardware

H200 = Accelerator(name="NVIDIA H200", driver="580.159.04", capability=9.0)
OUTPUT = "NVIDIA H200, 580.159.04, 9.0\n"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forget the cards before and after each test."""
    module._query.cache_clear()
    yield
    module._query.cache_clear()


def install(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program called `nvidia-smi` on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_parse_cards_reads_name_driver_and_capability() -> None:
    assert tuple(parse_cards(OUTPUT)) == (H200,)
    (odd,) = parse_cards("Some Card, 470.1, [N/A]\n")
    assert (odd.name, odd.capability) == ("Some Card", 0.0)
    assert not [*parse_cards("No devices were found\n")]
    assert card_names([H200, H200, odd]) == "2 × NVIDIA H200, Some Card"


def test_hardware_names_cards_and_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    install(tmp_path, f"printf '{OUTPUT}'", monkeypatch)
    machine = hardware()
    assert (machine["accelerators"], machine["driver"]) == ("NVIDIA H200", "580.159.04")


@pytest.mark.parametrize("script", ["exit 9", "echo broken; exit 0"])
def test_hardware_has_no_cards_if_nvidia_smi_reports_none(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, script, monkeypatch)
    assert "accelerators" not in hardware()
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    module._query.cache_clear()
    assert accelerators() == ()


def test_accelerators_are_those_that_cuda_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, 'for last; do :; done\necho "Card $last, 1.0, 9.0"', monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [card.name for card in accelerators()] == ["Card --id=1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert accelerators() == ()
