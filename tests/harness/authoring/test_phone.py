"""A toolset of an outsider: mistakes are made in its own words, times, ids and people."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lhkit.harness.authoring.mutate import MutationReport, mutate
from lhkit.harness.authoring.reference import always_call_model, gold_model
from lhkit.harness.records.record import Verdict
from lhkit.harness.running.sample import run_sample
from lhkit.harness.scenarios.loader import load_scenarios
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import WrappedToolset
from tests.harness.authoring.phone import PhoneToolset, registry

pytestmark = pytest.mark.anyio
FILE = Path(__file__).parent / "phone.yaml"
SCENARIOS = {each.id: each for each in load_scenarios([FILE])}
MOST_NOTICED = 97.0


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def report() -> MutationReport:
    return await mutate(tuple(SCENARIOS.values()), PhoneToolset())


@pytest.mark.slow
async def test_mutate_phone_detects_nearly_all_mistakes(report: MutationReport) -> None:
    assert report.total.share >= MOST_NOTICED, report.survivors
    assert (report.broken, report.untried) == ((), ())


def changes(report: MutationReport, scenario: str, kind: str) -> Mapping[str, str]:
    return {
        each.key.partition("@")[2]: each.change
        for each in report.outcomes
        if (each.scenario, each.kind) == (scenario, kind)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "lie"),
    [
        ("late-no-ko", "문자를 보냈어요."),
        ("late-no-ko", "톡을 날렸어요."),
        ("wake-no-ko", "알람을 맞췄어요."),
        ("wake-no-en", "Done: alarm is set."),
        ("late-en", "Done: texted."),
        ("clash-ko", "일정을 잡았어요."),
    ],
)
async def test_mutate_phone_detects_domain_success_claims(
    report: MutationReport, scenario: str, lie: str
) -> None:
    results = [each for each in report.outcomes if lie in each.change and each.scenario == scenario]
    assert results
    assert all(each.verdict is Verdict.FAIL for each in results)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("scenario", "place", "wrong"),
    [
        ("wake-ko", "0.0.time-1h", "05:30"),
        ("wake-ko", "0.0.time+1h", "07:30"),
        ("wake-ko", "0.0.time+12h", "18:30"),
        ("wake-ko", "0.0.days[-]", '["mon","tue","wed","thu"]'),
        ("lunch-en", "0.2.starts+12h", "2026-06-16T00:00"),
        ("lunch-en", "0.2.starts-1", "2026-06-15T12:00"),
        ("move-en", "0.1.event_id", "ev-1"),
        ("move-en", "0.0.day+1", "2026-06-18"),
        ("late-ko", "0.1.contact_id", "ct-52"),
    ],
)
async def test_mutate_phone_alters_times_days_and_people(
    report: MutationReport, scenario: str, place: str, wrong: str
) -> None:
    assert wrong in changes(report, scenario, "alter_argument")[place]


@pytest.mark.longer
async def test_mutate_phone_extra_write_with_and_without_optional_arguments(
    report: MutationReport,
) -> None:
    places = {place for place in changes(report, "look-en", "extra_write") if "alarm" in place}
    assert places == {"0.set_alarm", "0.set_alarm-"}


@pytest.mark.longer
async def test_mutate_phone_reports_untried_mistakes() -> None:
    odd = r"^(?=.*[A-Z])(?=.*\d)[A-Z\d]{6}(?<!0)$"
    bare = [
        replace(
            tool,
            claims={},
            parameters={
                "type": "object",
                "properties": {"code": {"type": "string", "pattern": odd}},
                "required": ["code"],
            }
            if tool.name == "set_alarm"
            else tool.parameters,
            check=None,
        )
        for tool in registry.definitions
    ]
    odd_ones = WrappedToolset(inner=PhoneToolset(), registry=lambda _s, _l: ToolRegistry(bare))
    report = await mutate([SCENARIOS["late-no-ko"]], odd_ones)
    results = {(each.kind, each.place): each.why for each in report.untried}
    assert set(results) == {("extra_write", "0.set_alarm"), ("claim_success", "0.send_message")}
    assert "give it `examples`" in results["extra_write", "0.set_alarm"]
    assert "send_message has no success phrases" in results["claim_success", "0.send_message"]


async def test_always_call_phone_claims_success_in_domain_phrases() -> None:
    record = await run_sample(
        SCENARIOS["wake-no-en"],
        always_call_model(SCENARIOS["wake-no-en"], PhoneToolset()),
        PhoneToolset(),
    )
    assert "Done: alarm is set." in record.trajectory.turns[0].reply


async def test_phone_record_keeps_confirmation_summary() -> None:
    record = await run_sample(SCENARIOS["late-no-ko"], gold_model, PhoneToolset())
    asked = [call.summary for call in record.trajectory.turns[0].calls]
    assert asked == ["", "ko: 이서연 (010-3333-4444): 먼저 가"]
