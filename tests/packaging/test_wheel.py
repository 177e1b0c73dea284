"""The built wheel in empty environments without the repository, on each Python found here.

At night: the Pythons after the oldest, each extra by itself, and a project that uses two.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEARCH = os.environ["PATH"]  # noqa: TID251 - of a user
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{SEARCH}")
PYENV = sorted(Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob("versions/3.*/bin"))  # noqa: TID251
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = ("local", "notebook", "eval", "mcp", "ray", "finetune", "all")
MCP_CLIENT = """
import asyncio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main():
    command = StdioServerParameters(
        command="bin/lhkit", args=["mcp", "serve", "--toolset", "demo/tools.py:toolset"]
    )
    async with Client(stdio_client(command)) as client:
        print([tool.name for tool in (await client.list_tools()).tools])

asyncio.run(main())
"""

NIGHTLY = pytest.mark.nightly

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def environment(folder: Path) -> dict[str, str]:
    """Return a user's environment, without this repository; uv keeps its cache of downloads."""
    given = dict(os.environ)  # noqa: TID251 - of a user
    inherited = {
        name: value
        for name, value in given.items()
        if not name.startswith(("PYTHON", "LHKIT", "PYTEST", "VIRTUAL_ENV"))
    }
    search = os.pathsep.join([str(folder / "bin"), SEARCH, *map(str, PYENV)])
    cache = given.get("UV_CACHE_DIR", str(Path("~/.cache/uv").expanduser()))
    return inherited | {
        "HOME": str(folder),
        "LHKIT_LOCALE": "en",
        "PATH": search,
        "UV_CACHE_DIR": cache,
        "UV_PYTHON_DOWNLOADS": "never",
    }


def run(folder: Path, *command: str | Path, code: int = 0) -> str:
    """Run a command in a user's folder; return its output."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    return output


def build(source: Path, kind: str, folder: Path) -> Path:
    """Build a wheel or an sdist of a folder."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder))
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, "sdist", tmp_path_factory.mktemp("packed"))) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of the sdist, as a package index gets it."""
    return build(sdist, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def uv() -> str:
    assert UV, "no uv: `make venv` installs it"
    return UV


def is_here(uv: str, python: str) -> bool:
    search = os.pathsep.join([SEARCH, *map(str, PYENV)])
    found = subprocess.run(
        [uv, "python", "find", "--system", python],
        env=dict(os.environ) | {"PATH": search, "UV_PYTHON_DOWNLOADS": "never"},  # noqa: TID251
        capture_output=True,
        check=False,
    )
    return found.returncode == 0


def install(folder: Path, uv: str, python: str, *packages: str) -> None:
    """Create an environment in `folder` with a Python that is found here, and nothing else."""
    run(folder, uv, "venv", "--python", python, "--allow-existing", ".")
    run(folder, uv, "pip", "install", "--python", "bin/python", *packages)


@pytest.mark.parametrize(
    "python", [pytest.param(name, marks=NIGHTLY if name != PYTHONS[0] else ()) for name in PYTHONS]
)
def test_wheel_without_extras_evaluates_a_new_project(
    python: str, wheel: Path, uv: str, tmp_path: Path
) -> None:
    # The first is never skipped; the others run at night, on machines that have some of them.
    if python != PYTHONS[0] and not is_here(uv, python):
        pytest.skip(f"no Python {python} is installed here")
    install(tmp_path, uv, python, str(wheel), "pytest")
    code = "import lhkit, sys; print(lhkit.__file__); assert 'pandas' not in sys.modules"
    assert str(tmp_path) in run(tmp_path, "bin/python", "-c", code)
    assert "Put a small local model" in run(tmp_path, "bin/lhkit", "--help")
    assert "approved blindly" in run(tmp_path, "bin/lhkit", "demo")
    run(tmp_path, "bin/lhkit", "init", "demo")
    assert "3/3 100%" in run(tmp_path, "bin/lhkit", "eval", "demo", "--model", "gold")
    options = ("demo", "--lhkit-toolset=demo/tools.py:toolset", "--lhkit-model=gold")
    assert "3 passed" in run(tmp_path, "bin/python", "-m", "pytest", *options)


@NIGHTLY
def test_wheel_serves_mcp_and_writes_a_report(wheel: Path, uv: str, tmp_path: Path) -> None:
    install(tmp_path, uv, "3.11", f"{wheel}[mcp,eval]")
    run(tmp_path, "bin/lhkit", "init", "demo")
    assert "add_item" in run(tmp_path, "bin/python", "-c", MCP_CLIENT)
    run(tmp_path, "bin/lhkit", "eval", "demo", "--model", "gold", "--name", "gold")
    run(tmp_path, "bin/lhkit", "report", "runs/gold", "--html", "gold.html")
    assert "data:image/svg+xml" in (tmp_path / "gold.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "extra", [pytest.param(name, marks=NIGHTLY if name != "all" else ()) for name in EXTRAS]
)
@pytest.mark.parametrize("python", [pytest.param("3.11", marks=NIGHTLY), "3.14"])
def test_extra_resolves(extra: str, python: str, uv: str, tmp_path: Path) -> None:
    """By day only for the newest Python: `make venv` installs all for the oldest."""
    command = ("pip", "compile", ROOT / "pyproject.toml", "--extra", extra)
    names = run(tmp_path, uv, *command, "--no-annotate", "--python-version", python)
    assert "aiohttp==" in names


def test_sdist_has_package_tests_and_docs(sdist: Path) -> None:
    assert {path.name for path in sdist.iterdir()} >= {"lhkit", "tests", "docs", "README.md"}
    assert {path.name for path in (sdist / "datasets").iterdir()} == {"ac", "catalog"}
    assert not {"evals", "notebooks"} & {path.name for path in sdist.iterdir()}


@NIGHTLY
def test_wheel_of_the_sdist_has_the_files_of_the_repository(wheel: Path, tmp_path: Path) -> None:
    other = build(ROOT, "wheel", tmp_path)
    assert other.name == wheel.name
    assert zipfile.ZipFile(other).namelist() == zipfile.ZipFile(wheel).namelist()
