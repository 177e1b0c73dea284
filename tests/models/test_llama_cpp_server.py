"""The embedded Gemma as a GGUF file for llama.cpp."""

import json
import os
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lhkit import app, embedded
from lhkit.base.errors import AdapterError, MissingPackageError, UsageError, WeightsError
from lhkit.base.files import file_sha256
from lhkit.base.process import usable_cores
from lhkit.models.client.identity import weights_alias
from lhkit.models.runtimes import LLAMA_CPP, VLLM, Runtime
from lhkit.models.serving import llama_cpp_server
from lhkit.models.serving.llama_cpp_server import (
    ADAPTER,
    ensure_gguf,
    gguf_plan,
    gguf_sha256,
    light_adapter,
    light_file,
)
from lhkit.models.serving.server import RunningServer, after_boot_s
from lhkit.models.weights.weights import NOTICE
from lhkit.models.weights.weights_folder import FOLDER_MANIFEST, WeightsProgress
from lhkit.settings import Settings
from tests.models.fake_llama_cpp import FakeLlamaCpp
from tests.models.fake_vllm import answers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

BASE = b"a base"
WIDTH, DEPTH, RANK = 64, 32, 2
RNG = np.random.default_rng(7)
NARROW = RNG.normal(size=(RANK, DEPTH)).astype(np.float32)
WIDE = RNG.normal(size=(WIDTH, RANK)).astype(np.float32)
LAYER = "base_model.model.model.layers.0.mlp.down_proj"


@dataclass
class World:
    """An index that holds a base, and its adapter."""

    root: Path
    adapter: Path
    fetches: int = 0
    progress: list[WeightsProgress] = field(default_factory=list)

    async def fetch(self, folder: Path) -> Path:
        self.fetches += 1
        (folder / "GEMMA_TERMS.html").write_text("terms")
        (folder / "model.gguf").write_bytes(BASE)
        return folder / "model.gguf"

    async def ensure(self, name: str = "gemma") -> Path:
        return await ensure_gguf(
            self.root / "cache",
            name,
            report=self.progress.append,
            adapter=self.adapter,
            fetch=self.fetch,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    write_adapter(adapter)
    return World(root=tmp_path, adapter=adapter)


def write_adapter(folder: Path, layer: str = LAYER, **card: Any) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": 4, **card}))
    header, data = {}, b""
    for side, values in (("A", NARROW), ("B", WIDE)):
        raw = values.tobytes()
        place = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data)]}
        data += raw
        place["data_offsets"] = [len(data) - len(raw), len(data)]
        header[f"{layer}.lora_{side}.weight"] = place
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.longer
async def test_ensure_light_keeps_the_base_and_converts_the_adapter(world: World) -> None:
    import gguf  # slow

    file = await world.ensure()
    assert file.read_bytes() == BASE
    assert light_adapter(file) == file.with_name(ADAPTER)
    read = gguf.GGUFReader(file.with_name(ADAPTER))

    def read_value(key: str) -> Any:
        return read.fields[key].contents()

    assert read_value("general.architecture") == "gemma3"
    assert (read_value("general.type"), read_value("adapter.type")) == ("adapter", "lora")
    assert read_value("adapter.lora.alpha") == 4.0
    tensors = {each.name: each.data for each in read.tensors}
    assert tensors.keys() == {f"blk.0.ffn_down.weight.lora_{side}" for side in "ab"}
    assert np.array_equal(tensors["blk.0.ffn_down.weight.lora_a"], NARROW)
    assert np.array_equal(tensors["blk.0.ffn_down.weight.lora_b"], WIDE)


@pytest.mark.longer
async def test_ensure_light_of_the_base_has_no_adapter(world: World) -> None:
    file = await world.ensure("gemma-base")
    assert light_adapter(file) is None
    assert {each.suffix for each in file.parent.iterdir()} == {".gguf", ".html", ".json"}
    assert gguf_sha256(file) == file_sha256(file)
    assert (file.name, (await world.ensure()).name) == (
        "gemma-base-Q4_K_M.gguf",
        "gemma-Q4_K_M.gguf",
    )


@pytest.mark.longer
async def test_ensure_light_builds_once_per_adapter_with_manifest_and_terms(world: World) -> None:
    file = await world.ensure()
    made = {each.name for each in file.parent.iterdir()}
    assert made == {file.name, ADAPTER, "GEMMA_TERMS.html", FOLDER_MANIFEST}
    manifest = json.loads((file.parent / FOLDER_MANIFEST).read_text())
    assert manifest["files"][file.name]["sha256"] == file_sha256(file)
    assert world.progress[0].text == NOTICE
    assert await world.ensure() == file
    assert world.fetches == 1
    left = [each.name for each in file.parent.parent.iterdir() if each.suffix != ".lock"]
    assert left == [file.parent.name]
    before = gguf_sha256(file)
    file.with_name(ADAPTER).write_bytes(b"another")
    assert file_sha256(file) != gguf_sha256(file) != before
    write_adapter(world.adapter, note="trained on")
    assert await world.ensure() != file


@pytest.mark.longer
@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda folder: write_adapter(folder, LAYER.replace("down_proj", "router")), "no name for"),
        (lambda folder: write_adapter(folder, use_dora=True), "plain LoRA"),
    ],
)
async def test_ensure_light_refuses_an_unsupported_adapter_before_fetching(
    world: World, corrupt: Callable[[Path], None], message: str
) -> None:
    corrupt(world.adapter)
    with pytest.raises(WeightsError, match=message):
        await world.ensure()
    assert world.fetches == 0


async def test_ensure_light_reports_a_missing_adapter(world: World) -> None:
    (world.adapter / "adapter_config.json").unlink()
    with pytest.raises(AdapterError, match="Invalid adapter folder"):
        await world.ensure()


async def test_require_llama_cpp_fails_before_fetching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp_server, "find_spec", lambda _name: None)
    settings = Settings(cache_dir=tmp_path, runtime=LLAMA_CPP)
    with pytest.raises(MissingPackageError, match=r"lhkit\[local\]"):
        await embedded.prepare_server(settings, embedded.Reports())
    assert not (tmp_path / "weights").exists()


async def test_llama_cpp_settings_have_name_hash_and_their_own_registration(tmp_path: Path) -> None:
    file, adapter = tmp_path / "gemma-Q4_K_M.gguf", tmp_path / ADAPTER
    file.write_bytes(b"weights")
    adapter.write_bytes(b"adapter")
    now = Settings(cache_dir=tmp_path).now()
    plan = await gguf_plan("gemma", file, tmp_path, now, port=8099)
    served = (str(file), "8099", "8", "gemma", weights_alias(gguf_sha256(file)))
    threads = ("--threads", str(usable_cores()))
    assert plan.arguments(8099)[1:] == (*threads, "--adapter", str(adapter), *served)
    assert plan.registered_name == "gemma.llama.cpp"
    assert plan.environment() == {"PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize("runtime", [VLLM, LLAMA_CPP])
async def test_running_server_is_found_by_runtime(tmp_path: Path, runtime: Runtime) -> None:
    settings = Settings(cache_dir=tmp_path, runtime=runtime)
    async with FakeLlamaCpp(**{"/health": answers(200, "{}")}) as server:
        stored = RunningServer(
            served_name="gemma",
            base_url=server.base_url,
            model=str(light_file(tmp_path)),
            pid=os.getpid(),
            after_boot_s=after_boot_s(os.getpid()),
        )
        (tmp_path / "servers").mkdir()
        record = json.dumps(asdict(stored))
        (tmp_path / "servers" / "gemma.llama.cpp.json").write_text(record)
        running = await embedded.running_server("gemma", settings)
    assert (running == stored) is (runtime == LLAMA_CPP)


@pytest.mark.parametrize(
    ("asked", "message"),
    [({"constraint": "auto"}, "--constrain off"), ({"dialect": "openai"}, "--runtime vllm")],
)
def test_runtime_refuses_unsupported_options_before_the_start(
    asked: dict[str, Any], message: str
) -> None:
    choice = app.ModelChoice(**asked)
    with pytest.raises(UsageError, match=message):
        app.require_choice(choice, LLAMA_CPP)
    if "constraint" not in asked:
        app.require_choice(choice)
    app.require_choice(app.ModelChoice(constraint="off"), LLAMA_CPP)


@pytest.mark.parametrize("asked", [{"server_parser": True}, {"compiled": True}])
async def test_prepare_server_refuses_vllm_options_for_llama_cpp(
    tmp_path: Path, asked: dict[str, bool]
) -> None:
    settings = Settings(cache_dir=tmp_path, runtime=LLAMA_CPP)
    with pytest.raises(UsageError, match="--runtime vllm"):
        await embedded.prepare_server(settings, embedded.Reports(), **asked)  # type: ignore[arg-type] # of these two
