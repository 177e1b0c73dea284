"""The hash of the weights in a folder."""

import os
import shutil
from pathlib import Path

import pytest

from lhkit.base.errors import ServerStartError, WeightsError
from lhkit.embedded import require_same_weights
from lhkit.models.serving.server import LocalServer
from lhkit.models.serving.vllm_server import ServerSettings
from lhkit.models.weights.weights_folder import WeightsProgress
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.settings import Settings

pytestmark = pytest.mark.anyio

BIG = b"w" * 3_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tuned" / "model"
    made.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (made / name).write_text(name)
    return made


async def test_weights_sha256_is_the_same_in_another_folder(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "README.md").write_text("about")
    (copy / "lhkit-manifest.json").write_text("{}")
    (copy / "checkpoint-3").mkdir()
    assert await weights_sha256(copy, tmp_path) == await weights_sha256(folder, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"),
        *("generation_config.json", "merges.txt", "a_kind_of_file_that_nobody_knows_yet"),
    ],
)
async def test_weights_sha256_changes_with_any_loaded_file(
    folder: Path, tmp_path: Path, name: str
) -> None:
    before = await weights_sha256(folder, tmp_path)
    (folder / name).write_text("other")
    assert await weights_sha256(folder, tmp_path) != before


async def test_weights_sha256_reads_a_large_file_once(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").write_bytes(BIG)
    reports: list[WeightsProgress] = []
    first = await weights_sha256(folder, tmp_path, report=reports.append)
    assert [(each.done_bytes, each.total_bytes) for each in reports] == [(len(BIG), len(BIG))]
    assert "reading model.safetensors" in reports[0].text
    assert await weights_sha256(folder, tmp_path, report=reports.append) == first
    assert len(reports) == 1


async def test_weights_sha256_detects_a_change_of_the_same_size_and_time(
    folder: Path, tmp_path: Path
) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(BIG)
    times = weights.stat()
    before = await weights_sha256(folder, tmp_path)
    weights.unlink()
    weights.write_bytes(BIG[:-1] + b"x")
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert await weights_sha256(folder, tmp_path) != before


@pytest.mark.parametrize("text", ["", "[]", "{}", '[["a", 1]]', "[[1, 2, 3]]"])
async def test_weights_sha256_ignores_an_invalid_cache(
    folder: Path, tmp_path: Path, text: str
) -> None:
    (folder / "model.safetensors").write_bytes(BIG)
    before = await weights_sha256(folder, tmp_path / "cache")
    (tmp_path / "cache" / "weights-sha256.json").write_text(text)
    assert await weights_sha256(folder, tmp_path / "cache") == before
    (tmp_path / "file").write_text("no folder")
    assert await weights_sha256(folder, tmp_path / "file") == before


async def test_weights_sha256_reports_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"none cannot be read .*: give another folder"):
        await weights_sha256(tmp_path / "none", tmp_path)


async def test_require_same_weights_refuses_weights_that_changed_during_the_start(
    folder: Path, tmp_path: Path
) -> None:
    settings = Settings(cache_dir=tmp_path)

    async def server() -> LocalServer:
        sha256 = await weights_sha256(folder, tmp_path)
        return LocalServer(
            ServerSettings(
                model=folder, served_name="model", log_path=tmp_path / "log", weights_sha256=sha256
            )
        )

    started = await server()
    await require_same_weights(started, settings)
    (folder / "model.safetensors").write_text("other")
    with pytest.raises(ServerStartError, match="was changed while its server was starting"):
        await require_same_weights(started, settings)
    await require_same_weights(await server(), settings)
