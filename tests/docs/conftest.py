from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.forks import forking_commands


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """Return a folder with `lhkit` and `python` that start at once, for a PATH."""
    with TemporaryDirectory() as folder, forking_commands(Path(folder)) as written:
        yield written
