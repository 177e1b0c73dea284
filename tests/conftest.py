import pytest
from hypothesis import settings

# Machines are shared: a slow moment is no fault of the code.
settings.register_profile("lhkit", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=20_000)  # --hypothesis-profile=fuzz
settings.load_profile("lhkit")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
