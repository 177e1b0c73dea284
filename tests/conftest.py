import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Machines are shared: a slow moment is no fault of the code.
settings.register_profile("lhkit", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=20_000)  # --hypothesis-profile=fuzz
settings.load_profile("lhkit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-contract", action="store_true", help="record tests/contract/recorded anew"
    )


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _what_a_toolset_brings_goes_with_its_test() -> Iterator[None]:
    """Forget the folders that loading a toolset put on the path, and the modules from there."""
    modules, path = set(sys.modules), list(sys.path)
    yield
    brought = [folder for folder in sys.path if folder not in path]
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if name.startswith("lhkit_toolset_") or file.startswith(tuple(brought)):
            del sys.modules[name]
    sys.path[:] = path
