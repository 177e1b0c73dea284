"""Number type and graphics card of a run, wherever a person looks at it."""

from dataclasses import replace
from pathlib import Path

import pytest

from lhkit.base.locales import load_catalog
from lhkit.conversation.responses import ModelIdentity, Sampling
from lhkit.harness.records.manifest import Manifest, manifest_changes
from lhkit.harness.records.resume import check_resumption
from lhkit.harness.report.metadata import run_metadata
from lhkit.harness.report.terminal import key_view, summary_view
from lhkit.harness.results.history import HistoryPoint
from lhkit.harness.results.results import Run
from lhkit.harness.running.fingerprint import model_sha256
from lhkit.harness.views.tables import change_text, dtype_text
from tests.harness.build import PASS, model_call, printed, sample, turn_of

CARD = ModelIdentity(model="gemma", server="vllm 0.25.1", dtype="bfloat16", device="NVIDIA H200")


def manifest(identity: ModelIdentity) -> Manifest:
    fields = {"model": identity.model, "server": identity.server}
    more = {"dtype": identity.dtype, "device": identity.device}
    return Manifest.model_validate({"models": [{**fields, **more}]})


def run_of(identity: ModelIdentity) -> Run:
    record = sample("a", PASS, 0, turn_of(model_call(identity=identity)))
    return Run(records=[record], manifest=manifest(identity))


def test_summary_page_and_history_name_number_type_and_card() -> None:
    catalog, shown = load_catalog("en"), "vllm 0.25.1, bfloat16, NVIDIA H200"
    run = run_of(CARD)
    summary = run.summary()
    assert shown in printed(summary_view(summary, catalog, criteria={}))
    assert shown in printed(key_view(summary, catalog))
    assert shown.replace(", ", " · ") in dict(run_metadata(run, summary, catalog))["model"]
    point = HistoryPoint(folder=Path("x"), manifest=run.manifest, summary=summary)
    other = replace(point, summary=run_of(replace(CARD, dtype="float32", device="")).summary())
    assert (point.arm, other.arm) == (
        "gemma · vllm · bfloat16 · NVIDIA H200",
        "gemma · vllm · float32",
    )


@pytest.mark.parametrize(
    ("locale", "lines"),
    [
        (
            "en",
            [
                "number type (dtype): not reported → bfloat16",
                "graphics card: - → NVIDIA H200",
            ],
        ),
        (
            "ko",
            [
                "계산 자료형(dtype): 알 수 없음 → bfloat16",
                "그래픽 카드: - → NVIDIA H200",
            ],
        ),
    ],
)
def test_comparison_names_number_type_and_card(locale: str, lines: list[str]) -> None:
    catalog = load_catalog(locale)
    other = manifest(replace(CARD, dtype="", device=""))
    changes = manifest_changes(other, manifest(CARD))
    assert [change_text(change, catalog) for change in changes] == lines


def test_number_type_of_a_vllm_that_reports_none_is_said() -> None:
    catalog = load_catalog("en")
    assert dtype_text(CARD, catalog) == "bfloat16"
    assert dtype_text(replace(CARD, dtype=""), catalog) == "number type not reported"
    assert dtype_text(ModelIdentity(model="x", server="unknown server"), catalog) == ""


def test_another_card_outdates_no_sample() -> None:
    elsewhere = replace(CARD, device="NVIDIA L4")
    assert model_sha256(CARD, Sampling()) == model_sha256(elsewhere, Sampling())
    resumption = check_resumption({}, [], manifest(CARD), manifest(elsewhere))
    assert resumption.changes == ()
    assert model_sha256(CARD, Sampling()) != model_sha256(replace(CARD, dtype=""), Sampling())
