"""The tuned Gemma in the cache: merged once, rebuilt if damaged, clear errors."""

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import AdapterError, MissingPackageError, WeightsError
from lhkit.models.weights import weights, weights_folder
from lhkit.models.weights.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, base_sha256
from lhkit.models.weights.adapter import MANIFEST as TRAINING
from lhkit.models.weights.conversion import main, merge
from lhkit.models.weights.tokenizer import load_encoder
from lhkit.models.weights.weights import (
    NOTICE,
    base_folder,
    ensure_tuned,
    merge_in_subprocess,
    tuned_folder,
)
from lhkit.models.weights.weights_folder import FOLDER_MANIFEST, WeightsProgress, WeightsStage

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@dataclass
class World:
    """An adapter, a base that is always there, a merger, and everything that was asked of them."""

    cache: Path
    adapter: Path
    verified: list[bool] = field(default_factory=list)
    merged: list[Path] = field(default_factory=list)
    reports: list[WeightsProgress] = field(default_factory=list)
    before_merging: Callable[[], Any] = lambda: None

    async def base(self, cache_dir: Path, **options: Any) -> Path:
        self.verified.append(options["verify"])
        options["report"](WeightsProgress(stage=WeightsStage.NOTICE, text=NOTICE))
        options["report"](WeightsProgress(stage=WeightsStage.CONVERTING, text="the base"))
        return base_folder(cache_dir)

    async def merge(self, base: Path, adapter: Path, target: Path) -> None:
        self.merged.append(base)
        await asyncio.sleep(0)
        self.before_merging()
        await asyncio.to_thread(write_model, target, (adapter / ADAPTER_WEIGHTS).read_bytes())

    async def ensure(self, **options: Any) -> Path:
        return await ensure_tuned(
            self.cache,
            report=self.reports.append,
            adapter=self.adapter,
            ensure_base=self.base,
            merge=self.merge,
            **options,
        )

    @property
    def folder(self) -> Path:
        return tuned_folder(self.cache, self.adapter)

    @property
    def left(self) -> list[str]:
        """Other files next to the finished folder, without the lock."""
        files = (self.cache / "weights").iterdir()
        return [p.name for p in files if p.name.startswith(".") and p.suffix != ".lock"]


def write_model(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content * 2)


@pytest.fixture
def world(tmp_path: Path) -> World:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / ADAPTER_CONFIG).write_text("{}")
    (adapter / ADAPTER_WEIGHTS).write_bytes(b"B and A")
    (adapter / "NOTICE").write_text("modified")
    return World(cache=tmp_path / "cache", adapter=adapter)


async def test_ensure_tuned_merges_once(world: World) -> None:
    folder = await world.ensure()
    assert folder == world.folder
    assert folder.name.startswith("gemma-3-270m-tuned-")
    assert (folder / "model.safetensors").read_bytes() == b"B and AB and A"
    assert (folder / "NOTICE").read_text() == "modified"
    manifest = json.loads((folder / FOLDER_MANIFEST).read_text())
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {FOLDER_MANIFEST}
    assert await world.ensure() == await world.ensure(verify=True) == folder
    assert world.merged == [base_folder(world.cache)]
    assert world.verified[0]
    assert world.left == []


async def test_ensure_tuned_reports_the_licence_notice_first_and_once(world: World) -> None:
    await world.ensure()
    assert world.reports[0].text == NOTICE
    stages = [progress.stage for progress in world.reports]
    assert stages.count(WeightsStage.NOTICE) == 1
    assert stages.index(WeightsStage.CONVERTING) < stages.index(WeightsStage.MERGING)
    await world.ensure()
    assert [progress.stage for progress in world.reports].count(WeightsStage.NOTICE) == 2


async def test_ensure_tuned_keeps_a_folder_per_adapter(world: World) -> None:
    folder = await world.ensure()
    (world.adapter / ADAPTER_WEIGHTS).write_bytes(b"A and B")
    assert await world.ensure() != folder
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize("name", [ADAPTER_CONFIG, ADAPTER_WEIGHTS])
async def test_ensure_tuned_reports_a_missing_adapter_first(world: World, name: str) -> None:
    (world.adapter / name).unlink()
    with pytest.raises(AdapterError, match="it needs adapter_config"):
        await world.ensure()
    assert not world.cache.exists()


async def test_ensure_tuned_reports_a_missing_package_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_folder, "find_spec", lambda name: None if name == "peft" else name)
    with pytest.raises(MissingPackageError, match=r"peft, not installed .*make venv"):
        await world.ensure()
    assert not world.merged


async def test_ensure_tuned_cleans_up_after_a_failed_merge(world: World) -> None:
    def fail() -> None:
        raise AdapterError("adapter does not fit base")

    world.before_merging = fail
    with pytest.raises(AdapterError, match="adapter does not fit base"):
        await world.ensure()
    assert not world.folder.exists()
    assert world.left == []


async def test_merge_in_subprocess_reports_invalid_input(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="no-adapter: it needs adapter_config"):
        await merge_in_subprocess(tmp_path, tmp_path / "no-adapter", tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("line", "kind", "sentence"),
    [
        ("ValueError: no", WeightsError, r"Merging the adapter failed \(exit 1: ValueError: no"),
        ("OSError: [Errno 28] No space left on device", OSError, "No space left"),
    ],
)
async def test_merge_in_subprocess_reports_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, kind: type[Exception], sentence: str
) -> None:
    async def run_python(*_: str) -> tuple[int, str]:
        return 1, line

    monkeypatch.setattr(weights, "run_python", run_python)
    with pytest.raises(kind, match=sentence):
        await merge_in_subprocess(tmp_path, tmp_path, tmp_path / "target")


@pytest.fixture(scope="session")
def tiny_adapter(tiny_gemma: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    shape = LoraConfig(r=2, lora_alpha=64, target_modules=["q_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(loaded(tiny_gemma), shape)
    for name, numbers in model.named_parameters():
        if "lora_B" in name:
            numbers.data.normal_()  # zeros else, which change nothing
    folder = tmp_path_factory.mktemp("tiny-adapter")
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def adapter(tiny_adapter: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_adapter, tmp_path / "adapter"))


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def test_merge_gives_the_logits_of_base_and_adapter(
    tiny_gemma: Path, adapter: Path, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel

    base, target = Path(shutil.copytree(tiny_gemma, tmp_path / "base")), tmp_path / "merged"
    (base / FOLDER_MANIFEST).write_text("{}")
    assert main(["merge", str(base), str(adapter), str(target)]) == 0
    prompt = torch.tensor([load_encoder(base)("<bos> <start_of_turn> user a b c d e add list")])
    adapted, merged, bare = (
        model(prompt).logits[0, -1].float().detach()
        for model in (
            PeftModel.from_pretrained(loaded(base), adapter),
            loaded(target),
            loaded(base),
        )
    )
    assert float((adapted - merged).abs().max()) < float((adapted - bare).abs().max()) / 4
    assert (target / "tokenizer.json").is_file()
    assert not (target / FOLDER_MANIFEST).exists()


def test_load_encoder_reports_an_invalid_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version":')
    with pytest.raises(WeightsError, match=r"tokenizer\.json cannot be read .*: replace"):
        load_encoder(tmp_path)


def base_like(folder: Path, target: Path) -> Path:
    """Return another base of the same shapes: one weight of it differs."""
    model = loaded(folder)
    model.model.norm.weight.data.add_(1)
    shutil.copytree(folder, target)
    model.save_pretrained(target)
    return target


def set_base(adapter: Path, name: str, sha256: str) -> None:
    manifest = {"base": {"name": name, "sha256": sha256}}
    (adapter / TRAINING).write_text(json.dumps(manifest), encoding="utf-8")


def test_merge_refuses_another_base_unless_converted_or_unnamed(
    tiny_gemma: Path, adapter: Path, tmp_path: Path
) -> None:
    set_base(adapter, "tiny", base_sha256(tiny_gemma))
    merge(tiny_gemma, adapter, tmp_path / "merged")
    other = base_like(tiny_gemma, tmp_path / "other")
    with pytest.raises(AdapterError) as raised:
        merge(other, adapter, tmp_path / "wrong")
    assert re.fullmatch(
        rf"{adapter} was trained on another base than {other}: it is for tiny "
        r"\(sha256 \w{12}, not \w{12}\)",
        str(raised.value),
    )
    set_base(adapter, "other", base_sha256(tiny_gemma))
    with pytest.raises(AdapterError, match="was trained on another base"):
        merge(other, adapter, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()
    (other / FOLDER_MANIFEST).write_text("{}", encoding="utf-8")  # a converted one
    merge(other, adapter, tmp_path / "by-name")
    (other / FOLDER_MANIFEST).unlink()
    (adapter / TRAINING).unlink()
    merge(other, adapter, tmp_path / "by-shapes")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (TRAINING, b"{", "manifest.json is invalid"),
        (TRAINING, b'{"base": []}', "manifest.json is invalid"),
        (ADAPTER_WEIGHTS, b"half a file", "adapter_model.safetensors is invalid"),
        (ADAPTER_CONFIG, b"{", "adapter_config.json is invalid"),
        (ADAPTER_CONFIG, b"[]", r"adapter_config.json is invalid: not a JSON object"),
    ],
)
def test_merge_names_an_invalid_adapter_file(
    tiny_gemma: Path, adapter: Path, tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (adapter / name).write_bytes(content)
    with pytest.raises(AdapterError, match=sentence):
        merge(tiny_gemma, adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
