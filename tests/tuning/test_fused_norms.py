"""The norms of a long training are compiled; where that cannot be done it trains as they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lhkit.tuning import adapter, train
from lhkit.tuning.data import Batch
from lhkit.tuning.recipe import AdapterShape
from tests.tuning.test_training import trained

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
"""torch's compiler looks at gradients of its own while it traces."""

BATCH = Batch(
    prefix=(2, 4, 6),
    rows=((9, 10, 11), (12, 13)),
    labels=((-100, 10, 11), (-100, 13)),
    decisive=(True, False, False),
)

Compile = Callable[..., Callable[..., Any]]


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch's compiler up to its last stage, which makes no code; what was compiled."""
    import torch

    compiled: list[str] = []
    whole: Compile = torch.compile

    def backend(graph: Any, _inputs: Any) -> Callable[..., Any]:
        compiled.append(str(graph.code))
        forward: Callable[..., Any] = graph.forward
        return forward

    def traced(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        return whole(function, backend=backend, **how)

    monkeypatch.setattr(torch, "compile", traced)
    return compiled


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def broken(*_: Any) -> None:
        raise RuntimeError("InvalidCxxCompiler: no working C++ compiler found")

    monkeypatch.setattr(torch, "compile", lambda _function, **_how: broken)


def losses_and_gradients(model: Any) -> list[Any]:
    losses = adapter.token_losses(model, BATCH)
    losses.sum().backward()
    gradients = [each.grad for each in adapter.trainable(model)]
    model.zero_grad()
    return [losses.detach(), *gradients]


def test_fused_norms_give_the_losses_and_gradients_of_the_plain_ones(
    tiny_gemma: Path, without_code: list[str]
) -> None:
    import torch

    model = adapter.with_adapter(
        adapter.load_model(tiny_gemma, "float32"), AdapterShape(rank=4), seed=1
    )
    plain = losses_and_gradients(model)
    assert adapter.fuse_norms(model, BATCH)
    assert [each for each in without_code if "rsqrt" in each] == without_code != []
    assert all(each.grad is None for each in adapter.trainable(model))
    fused = losses_and_gradients(model)
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(plain, fused, strict=True))


def test_a_cards_norms_give_the_losses_and_gradients_of_the_plain_ones(
    tiny_gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    model = adapter.with_adapter(
        adapter.load_model(tiny_gemma, "float32"), AdapterShape(rank=4), seed=1
    )
    plain = losses_and_gradients(model)
    normed: list[object] = []
    whole = torch.nn.functional.rms_norm

    def seen(*arguments: Any, **how: Any) -> Any:
        normed.append(arguments)
        return whole(*arguments, **how)

    monkeypatch.setattr(torch.nn.functional, "rms_norm", seen)
    adapter.use_norm_kernel(model)
    by_kernel = losses_and_gradients(model)
    assert normed
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(plain, by_kernel, strict=True))


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_model_stays_as_it_was(tiny_gemma: Path) -> None:
    import torch

    model = adapter.with_adapter(
        adapter.load_model(tiny_gemma, "float32"), AdapterShape(rank=4), seed=1
    )
    plain = losses_and_gradients(model)
    assert not adapter.fuse_norms(model, BATCH)
    again = losses_and_gradients(model)
    assert all(torch.equal(*pair) for pair in zip(plain, again, strict=True))


@pytest.mark.usefixtures("without_code")
def test_a_model_without_such_norms_is_not_said_to_be_fused(
    tiny_gemma: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.gemma3 import modeling_gemma3

    model = adapter.with_adapter(
        adapter.load_model(tiny_gemma, "float32"), AdapterShape(rank=4), seed=1
    )
    other = type("OtherNorm", (modeling_gemma3.Gemma3RMSNorm,), {})
    monkeypatch.setattr(modeling_gemma3, "Gemma3RMSNorm", other)
    assert not adapter.fuse_norms(model, BATCH)


def test_what_is_over_before_it_would_pay_is_not_compiled(
    tiny_gemma: Path, tmp_path: Path, without_code: list[str]
) -> None:
    trained(tiny_gemma, tmp_path, steps=2)
    assert not without_code
    assert "fused_norms" not in said_of_the_machine(tmp_path)


@pytest.mark.usefixtures("without_code")
def test_the_manifest_says_that_they_were_fused(
    tiny_gemma: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "_MINUTES_WORTH_COMPILING", 0)
    log = trained(tiny_gemma, tmp_path, steps=2)
    assert len(log) == 2
    assert said_of_the_machine(tmp_path)["fused_norms"] is True


def said_of_the_machine(folder: Path) -> dict[str, Any]:
    manifest = json.loads((folder / "adapter" / "manifest.json").read_text(encoding="utf-8"))
    machine: dict[str, Any] = manifest["machine"]
    return machine
