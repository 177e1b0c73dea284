"""The two embedded models: `gemma` is the tuned one, `gemma-base` the base."""

import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lhkit import app, embedded
from lhkit.base.errors import AdapterError, MissingPackageError, UsageError
from lhkit.models.serving import vllm_server
from lhkit.models.serving.server import RunningServer, after_boot_s
from lhkit.models.weights import weights
from lhkit.models.weights.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from lhkit.models.weights.weights_hash import weights_sha256
from lhkit.settings import Settings
from tests.models.fake_vllm import FakeVllm, answers, models
from tests.models.test_vllm_options import help_of

pytestmark = pytest.mark.anyio

NAMES = ("gemma", "gemma-base")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A temporary cache and an adapter in place of the shipped one."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        (adapter / name).write_text("{}")
    monkeypatch.setattr(weights, "SHIPPED_ADAPTER", adapter)
    return Settings(cache_dir=tmp_path / "cache")


@pytest.fixture
async def serving() -> AsyncIterator[dict[str, FakeVllm]]:
    """A server of each name."""
    health = answers(200, "")
    tuned, bare = (
        FakeVllm(routes={"/v1/models": models(name), "/health": health}) for name in NAMES
    )
    async with tuned, bare:
        yield dict(zip(NAMES, (tuned, bare), strict=True))


def advertise(name: str, server: FakeVllm, settings: Settings, model: Path | None = None) -> None:
    running = RunningServer(
        served_name=name,
        base_url=server.base_url,
        model=str(model or embedded.embedded_folder(name, settings)),
        pid=os.getpid(),
        after_boot_s=after_boot_s(os.getpid()),
    )
    folder = settings.cache_dir / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(asdict(running)))


@pytest.mark.parametrize(
    ("asked", "served"), [(None, "gemma"), ("gemma", "gemma"), ("gemma-base", "gemma-base")]
)
async def test_running_server_is_found_by_name(
    settings: Settings, serving: dict[str, FakeVllm], asked: str | None, served: str
) -> None:
    for name, server in serving.items():
        advertise(name, server, settings)
    async with app.open_model(app.ModelChoice(name=asked), settings) as model:
        assert model.identity.model == served
        assert model.identity.base_url == serving[served].base_url.removesuffix("/v1")


@pytest.mark.parametrize(("running", "asked"), [NAMES, NAMES[::-1]])
async def test_running_server_of_another_name_is_not_found(
    settings: Settings, serving: dict[str, FakeVllm], running: str, asked: str
) -> None:
    advertise(running, serving[running], settings)
    assert await embedded.running_server(asked, settings) is None
    assert await embedded.running_server(running, settings) is not None


async def test_running_server_of_older_weights_is_not_found(
    settings: Settings, serving: dict[str, FakeVllm]
) -> None:
    advertise("gemma", serving["gemma"], settings, model=Path("/weights/gemma-tuned-old"))
    assert await embedded.running_server("gemma", settings) is None
    assert (settings.cache_dir / "servers" / "gemma.json").exists()


async def test_prepare_vllm_uses_the_weights_of_the_name(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(folder.name)
        return folder

    async def ensured(cache_dir: Path, **_: Any) -> Path:
        return made(cache_dir / "tuned")

    async def bare(cache_dir: Path, **_: Any) -> Path:
        return made(cache_dir / "bare")

    async def printed(_command: Sequence[str]) -> str:
        return help_of("0.32")

    monkeypatch.setattr(weights, "ensure_tuned", ensured)
    monkeypatch.setattr(weights, "ensure_weights", bare)
    monkeypatch.setattr(vllm_server, "read_help", printed)
    monkeypatch.setattr(embedded, "require_vllm", lambda: None)
    default = await embedded.prepare_vllm(settings)
    base = await embedded.prepare_vllm(settings, name="gemma-base", server_parser=True)
    assert (default.served_name, default.model.name) == ("gemma", "tuned")
    assert default.log_path.name.startswith("gemma-2")
    assert (base.served_name, base.model.name) == ("gemma-base", "bare")
    assert "--enable-auto-tool-choice" in base.extra_args
    hashes = [await weights_sha256(each.model, settings.cache_dir) for each in (default, base)]
    assert [default.weights_sha256, base.weights_sha256] == hashes
    assert hashes[0] != hashes[1]


async def test_prepare_vllm_reports_a_missing_vllm_before_fetching(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetched(*_: object, **__: object) -> Path:
        raise AssertionError("weights were fetched that nothing can serve")

    monkeypatch.setattr(weights, "ensure_tuned", fetched)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingPackageError, match=r"vLLM is not installed.*--base-url"):
        await embedded.prepare_vllm(settings)


def test_embedded_name_refuses_an_unknown_name() -> None:
    with pytest.raises(UsageError, match="'gpt': choose one of gemma, gemma-base, or give"):
        app.embedded_name("gpt")


async def test_base_model_has_weights_without_an_adapter(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "adapter" / ADAPTER_WEIGHTS).unlink()
    assert embedded.embedded_folder("gemma-base", settings).name.startswith("gemma-3-270m-")
    with pytest.raises(AdapterError, match="Invalid adapter folder"):
        embedded.embedded_folder("gemma", settings)
