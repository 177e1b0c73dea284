"""The shipped adapter: complete, for the embedded base, with its notice."""

import json
from pathlib import Path

import pytest

from lhkit.models.weights.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, MANIFEST, require_adapter
from lhkit.models.weights.weights import NOTICE, SHIPPED_ADAPTER, base_folder

pytestmark = pytest.mark.slow

LARGEST_BYTES = 20_000_000
LINEAR_LAYERS = {*("q_proj", "k_proj", "v_proj", "o_proj"), *("gate_proj", "up_proj", "down_proj")}


def test_shipped_adapter_is_complete_and_small_enough_for_a_wheel() -> None:
    require_adapter(SHIPPED_ADAPTER)
    assert (SHIPPED_ADAPTER / ADAPTER_WEIGHTS).stat().st_size < LARGEST_BYTES
    safetensors = pytest.importorskip("safetensors", reason="vLLM is not installed")
    with safetensors.safe_open(SHIPPED_ADAPTER / ADAPTER_WEIGHTS, framework="pt") as weights:
        names = weights.keys()
        assert all(weights.get_tensor(name).isfinite().all() for name in names)
    assert {name.split(".")[-3] for name in names} == LINEAR_LAYERS


def test_shipped_adapter_names_its_base() -> None:
    manifest = json.loads((SHIPPED_ADAPTER / MANIFEST).read_text(encoding="utf-8"))
    assert manifest["base"]["name"] == base_folder(Path()).name


def test_shipped_adapter_config_has_no_local_path() -> None:
    card = json.loads((SHIPPED_ADAPTER / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    assert set(card["target_modules"]) == LINEAR_LAYERS
    assert "/" not in (card["base_model_name_or_path"] or "")


def test_shipped_adapter_has_a_model_card_and_the_gemma_notice() -> None:
    assert NOTICE in (SHIPPED_ADAPTER / "NOTICE").read_text(encoding="utf-8")
    assert (SHIPPED_ADAPTER / "CARD.md").is_file()
