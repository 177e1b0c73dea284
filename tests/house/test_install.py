"""`requirements/install.py` reports progress in a few lines and shows pip's errors."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "requirements" / "install.py"
NAMES = tuple(f"lhkit-sample-{letter}" for letter in "abcdefgh")


def wheel(folder: Path, name: str) -> None:
    """Write the smallest package that pip accepts."""
    module = name.replace("-", "_")
    about = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{module}.py", "")
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{about}/RECORD", "")


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    for name in NAMES:
        wheel(tmp_path, name)
    file = tmp_path / "lock.txt"
    pins = "".join(f"{name}==1.0\n" for name in NAMES)
    file.write_text(f"# what torch==1 is for\n{pins}", encoding="utf-8")
    return file


def install(lock: Path) -> subprocess.CompletedProcess[str]:
    """Install the lock file into a folder, as `make venv` does."""
    words = ["--no-index", "--find-links", str(lock.parent), "--target", str(lock.parent / "here")]
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(lock), *words],
        env={"HOME": str(lock.parent), "PIP_CONFIG_FILE": "/dev/null"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_install_counts_packages(lock: Path) -> None:
    done = install(lock)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.strip() for line in done.stdout.splitlines()] == [
        "2 of 8 packages",
        "4 of 8 packages",
        "6 of 8 packages",
        "8 of 8 packages",
        "8 of 8 packages are here, unpacking them",
    ]
    assert (lock.parent / "here" / "lhkit_sample_h.py").exists()


@pytest.mark.slow
def test_install_shows_errors_of_pip(lock: Path) -> None:
    with lock.open("a", encoding="utf-8") as file:
        file.write("lhkit-sample-z==1.0\n")
    done = install(lock)
    assert done.returncode == 1
    assert "ERROR: No matching distribution found for lhkit-sample-z==1.0" in done.stderr
    assert not (lock.parent / "here").exists()
