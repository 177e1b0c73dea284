"""`lhkit approvals`: the table, the exit codes, and the policy that it writes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lhkit
from lhkit import UsageError, approvals
from lhkit.base.locales import load_catalog
from lhkit.cli.approvals import exit_code, parse_percent
from lhkit.confirm.policy import ApprovalPolicy
from lhkit.conversation.messages import GateOutcome
from lhkit.harness.chats.approvals import policy_of
from lhkit.harness.chats.reviews import CallPlace, Label, LabelKind, ReviewFile, turn_sha256
from lhkit.harness.figures.approvals import (
    ApprovalDecision,
    Evidence,
    Proposal,
    Source,
    approvals_of,
)
from lhkit.harness.records.manifest import Manifest
from lhkit.harness.records.record import (
    ArgumentScore,
    CallRecord,
    CallScore,
    SampleRecord,
    TurnScore,
    encode_record,
)
from lhkit.harness.records.store import write_manifest
from lhkit.harness.report.markdown import markdown
from lhkit.harness.report.page import html_page
from lhkit.harness.results.results import Run
from lhkit.harness.views.approvals import approvals_table
from tests.cli.conftest import Run as Lhkit
from tests.harness.build import sample, turn_of
from tests.rows import check_rows

ENGLISH, KOREAN = load_catalog("en"), load_catalog("ko")
LIMITS = {"max_turns": 8, "max_result_bytes": 4096, "truncation_hint": ""}


def write(tool: str, is_wrong: bool, **more: Any) -> tuple[CallRecord, CallScore]:
    call = CallRecord(
        tool=tool,
        raw_args={"text": "x"},
        args={"text": "x"},
        result={"status": "ok"},
        gate=GateOutcome.ACCEPTED,
        ran=True,
        destructive=True,
        **more,
    )
    argument = ArgumentScore(name="text", ok=not is_wrong)
    return call, CallScore(
        expected=0, actual=0, tool=tool, called=tool, ok=not is_wrong, arguments=(argument,)
    )


def records_of(tool: str, right: int, wrong: int = 0, **more: Any) -> list[SampleRecord]:
    records = []
    for number in range(right + wrong):
        call, score = write(tool, number < wrong, **more)
        turn_score = TurnScore(passed=True, calls=(score,))
        records.append(
            sample(
                f"{tool}-{number}",
                "pass",
                0,
                turn_of(calls=(call,)),
                turn_scores=(turn_score,),
                locale="en",
            )
        )
    return records


def manifest(*tools: str, model: str = "gemma", **more: Any) -> Manifest:
    specs = [
        {
            "name": tool,
            "description": "writes",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
            "destructive": True,
        }
        for tool in tools
    ]
    prompt = {
        "instructions_sha256": "i",
        "tools_sha256": "t",
        "rendering_sha256": "r",
        "texts_sha256": "x",
        "assistant": LIMITS,
        "tools": specs,
    }
    data = {
        "models": [{"model": model, "dialect": "json", "constraint": "off"}],
        "sampling": [{"max_tokens": 100, "temperature": 0.0, "seed": 0}],
        "toolset": "notes",
        "locales": {"en": prompt},
        **more,
    }
    return Manifest.model_validate(data)


Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def made(name: str, records: Sequence[SampleRecord], about: Manifest) -> Path:
        path = tmp_path / name
        path.mkdir()
        lines = "".join(f"{encode_record(record)}\n" for record in records)
        (path / "records.jsonl").write_text(lines, encoding="utf-8")
        write_manifest(path, about)
        return path

    return made


@pytest.mark.longer
@pytest.mark.usefixtures("settings")
def test_approvals_prints_the_table_and_returns_the_exit_codes(run: Lhkit, folder: Folder) -> None:
    records = [*records_of("log", 212), *records_of("add", 30, 6), *records_of("delete", 9)]
    path = folder("a", records, manifest("log", "add", "delete", "never"))
    code, shown, _ = run("approvals", path)
    lines = shown.splitlines()
    assert code == 1
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert rows[0] == ["log", "212", "0", "1.4 %", "may run unasked", "212", "runs"]
    assert [row[0] for row in rows if row[0]] == ["log", "add", "delete", "never"]
    assert "keep asking" in shown
    assert "about 140 more" in shown.replace("│", " ").replace("\n", " ") or "140 more" in shown
    assert "Cards: 257, 1.00 a turn; 98 % of them needless" in shown
    assert run("approvals", path, "--tool", "log")[0] == 0
    assert run("approvals", path, "--tool", "log", "--tool", "delete")[0] == 4
    assert run("approvals", path, "--tool", "never")[0] == 4
    assert run("approvals", path, "--tool", "add", "--risk", "40%")[0] == 0
    code, _, error = run("approvals", path, "--tool", "lgo")
    assert (code, "'lgo'" in error) == (2, True)
    code, _, error = run("approvals", path, "--confidence", "40%")
    assert (code, "--confidence is invalid: '40%'. Give at least 50%" in error) == (2, True)


@pytest.mark.usefixtures("settings")
def test_approvals_prints_json(run: Lhkit, folder: Folder) -> None:
    path = folder("a", records_of("log", 212), manifest("log"))
    code, shown, _ = run("approvals", path, "--json")
    values = json.loads(shown)
    assert code == 0
    assert (values["risk"], values["confidence"]) == (0.02, 0.95)
    (row,) = values["tools"]
    assert (row["tool"], row["decision"], row["saved"]) == ("log", "run", 212)
    assert values["cost"]["cards"] == 212


@pytest.mark.usefixtures("settings")
def test_approvals_of_runs_without_a_tool_that_writes_says_so(run: Lhkit, folder: Folder) -> None:
    path = folder("a", [sample()], Manifest(toolset="notes"))
    code, shown, _ = run("approvals", path)
    assert code == 4
    assert "No tool of these runs writes" in shown


@pytest.mark.usefixtures("settings")
def test_written_policy_has_the_decisions_and_what_was_measured(
    run: Lhkit, folder: Folder, tmp_path: Path
) -> None:
    records = [*records_of("log", 212), *records_of("add", 30, 6)]
    first = folder("a", records, manifest("log", "add"))
    file = tmp_path / "approvals.toml"
    code, shown, _ = run("approvals", first, "--write", file)
    policy = ApprovalPolicy.read(file)
    assert code == 1
    assert "--approvals" in shown
    assert (policy.risk, policy.confidence, policy.runs) == (0.02, 0.95, ("a",))
    assert policy.unasked == ("log",)
    assert policy.tools["log"].proposed == 212
    assert policy.tools["add"].rule == "ask"
    assert [*policy.measured["en"].tools] == ["log", "add"]


@pytest.mark.longer
@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"model": "gemma-2"}, "model"),
        ({"sampling": [{"max_tokens": 1, "temperature": 0.5, "seed": 0}]}, "model"),
        ({"models": [{"model": "gemma", "dialect": "json", "constraint": "auto"}]}, "constraint"),
        ({"code_sha256": "c"}, "code"),
    ],
)
@pytest.mark.usefixtures("settings")
def test_policy_is_refused_for_runs_of_different_things(
    run: Lhkit, folder: Folder, tmp_path: Path, other: Any, part: str
) -> None:
    first = folder("a", records_of("log", 100), manifest("log", code_sha256="b"))
    second = folder("b", records_of("log", 200), manifest("log", **{"code_sha256": "b", **other}))
    file = tmp_path / "approvals.toml"
    code, _, error = run("approvals", first, second, "--write", file)
    assert code == 2
    assert part in error
    assert not file.exists()
    assert run("approvals", first, second)[0] == 0


@pytest.mark.longer
@pytest.mark.usefixtures("settings")
def test_policy_is_refused_for_other_tools_and_for_one_run_with_two_models(
    run: Lhkit, folder: Folder, tmp_path: Path
) -> None:
    first = folder("a", records_of("log", 100), manifest("log"))
    second = folder("b", records_of("log", 200), manifest("log", "more"))
    code, _, error = run("approvals", first, second, "--write", tmp_path / "x.toml")
    assert (code, "tools" in error) == (2, True)
    two = [{"model": name, "dialect": "json"} for name in ("a", "b")]
    third = folder("c", records_of("log", 200), manifest("log", models=two))
    code, _, error = run("approvals", third, "--write", tmp_path / "x.toml")
    assert (code, "models" in error) == (2, True)
    assert not (tmp_path / "x.toml").exists()


def test_policy_of_two_languages_needs_one_model_in_both() -> None:
    english, korean = manifest("log"), manifest("log", model="other")
    korean = korean.model_copy(update={"locales": {"ko": korean.locales["en"]}})
    runs = [
        Run(records=records_of("log", 200), manifest=about, name=name)
        for name, about in (("a", english), ("b", korean))
    ]
    with pytest.raises(UsageError, match="model"):
        policy_of(approvals(*runs), runs)
    same = korean.model_copy(update={"models": english.models})
    runs[1] = replace(runs[1], manifest=same)
    assert [*policy_of(approvals(*runs), runs).measured] == ["en", "ko"]


@pytest.fixture
def chats(folder: Folder) -> Path:
    records = []
    for number, gate in enumerate([GateOutcome.ACCEPTED] * 4 + [GateOutcome.REJECTED]):
        call, _ = write("log", False, answer="run" if number < 4 else "cancel", waiting_s=0.5)
        call = replace(call, gate=gate)
        records.append(sample(f"chat-{number}", "invalid", 0, turn_of(calls=(call,)), locale="en"))
    path = folder("chats", records, Manifest(user="person", toolset="notes"))
    for name, verdicts in (
        ("kim", {0: LabelKind.RIGHT, 1: LabelKind.RIGHT}),
        ("lee", {1: LabelKind.WRONG}),
    ):
        file = ReviewFile(path, name)
        for number, verdict in verdicts.items():
            place = CallPlace(sample=f"chat-{number}", turn=0, call=0)
            turn = records[number].trajectory.turns[0]
            file.append(Label(place=place, verdict=verdict, turn_sha256=turn_sha256(turn)))
    return path


@pytest.mark.usefixtures("settings")
def test_chats_count_with_their_reviews(
    run: Lhkit, folder: Folder, chats: Path, tmp_path: Path
) -> None:
    path = folder("a", records_of("log", 10), manifest("log"))
    code, shown, _ = run("approvals", path, "--chats", chats, "--risk", "5%")
    assert code == 4
    assert "│ log  │    13 │     2 │" in shown  # 10 in runs; a right, a disputed and a rejected one
    assert "runs, chats," in shown
    assert "Not counted, because it is not known whether the write was wanted: 2 cards" in shown
    some = "Cards: 15, 1.00 a turn; of the 13 with a known result 85 % needless (a right proposal)."
    assert some in shown
    assert "A person took 0.500 s (median of 5 cards); 100 % of the approvals" in shown
    _, shown, _ = run("approvals", path, "--chats", chats, "--trust-approvals")
    assert "│ log  │    15 │     2 │" in shown
    assert "count as right here" in shown
    code, _, error = run("approvals", path, "--chats", chats, "--write", tmp_path / "x.toml")
    assert code == 2
    assert "prompt" in error
    code, _, error = run("approvals", path, "--chats", path)
    assert code == 2
    assert "has a run" in error
    # a folder of chats may also be given as a run
    assert run("approvals", chats, "--json")[1].count('"proposed": 3') == 1


@pytest.mark.usefixtures("settings")
def test_run_that_was_chosen_by_its_result_is_remarked(run: Lhkit, folder: Folder) -> None:
    selection = {"taken": 1, "total": 2, "filter": {"failed": "runs/x"}}
    path = folder("a", records_of("log", 5), manifest("log", selection=selection))
    assert "failed before" in run("approvals", path)[1]
    other = folder("b", records_of("log", 5), manifest("log", model="other"))
    assert "several models" in run("approvals", path, other)[1]
    assert "several models" in run("approvals", path, other, "--json")[2]


def test_policy_is_refused_for_a_tool_that_no_manifest_has() -> None:
    run = Run(records=records_of("log", 212), manifest=manifest("other"), name="a")
    with pytest.raises(UsageError, match="log may run unasked, but no manifest"):
        policy_of(approvals(run), [run])


@check_rows("text", ["2", "0.02", "0%", "100%", "-1%", "2 % x", "nan%", "", "%"])
def test_percent_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--risk is invalid"):
        parse_percent(text, "--risk")


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.5 %", 0.005), (" 99.9% ", 0.999)])
def test_percent_is_read(text: str, share: float) -> None:
    assert parse_percent(text, "--risk") == pytest.approx(share)


@check_rows(
    ("decisions", "code"),
    [
        ("run", 0),
        ("run run_above always_ask", 0),
        ("run cannot_tell", 4),
        ("ask cannot_tell run", 1),
        ("", 4),
    ],
)
def test_exit_code_of_decisions(decisions: str, code: int) -> None:
    assert exit_code(map(ApprovalDecision, decisions.split())) == code


@pytest.mark.longer
def test_frame_and_notebook_form_have_each_tool() -> None:
    run = Run(
        records=[*records_of("log", 212), *records_of("add", 30, 6)], manifest=manifest("log")
    )
    frame = run.approvals()
    assert frame["tool"].tolist() == ["log", "add"]
    assert frame["decision"].tolist() == ["run", "ask"]
    assert frame["saved"].tolist() == [212, 0]
    table = lhkit.approvals(run, risk=0.02)
    assert table.frame.equals(frame)
    html = table._repr_html_()
    assert "log" in html
    assert repr(table) == "<Approvals at 2 %: log: run, add: ask>"
    assert Run(records=[], manifest=manifest()).approvals().empty
    assert lhkit.approvals(run, tools=["add"]).frame["tool"].tolist() == ["add"]


def test_threshold_has_a_column_where_calls_have_log_probabilities() -> None:
    records = records_of("log", 400, min_logprob=-0.1)
    assert "certain calls" not in str(
        approvals_table(approvals(*[run_of(records_of("log", 9))]), ENGLISH)
    )
    table = approvals_table(approvals(run_of(records)), ENGLISH)
    assert table.columns[6].text == "certain calls"
    assert all("wrong" in row[6].text for row in table.rows)
    korean = approvals_table(approvals(run_of(records)), KOREAN)
    assert korean.columns[6].text == "확실한 호출"


@pytest.mark.parametrize(
    ("catalog", "wanted"),
    [
        (ENGLISH, ["not known whether the write was wanted: 2 writes that ran without asking"]),
        (KOREAN, ["원한 쓰기였는지 알 수 없어 세지 않은 것: 채팅에서 확인 없이 실행한 쓰기 2개"]),
    ],
    ids=["en", "ko"],
)
def test_table_says_what_it_does_not_know_of_writes_by_policy_in_chats(
    catalog: Any, wanted: list[str]
) -> None:
    proposals = [
        Proposal(tool="t", cluster=f"c{n}", is_wrong=is_wrong, is_policy=True, source=source)
        for n, (is_wrong, source) in enumerate(
            [(None, Source.CHATS), (None, Source.CHATS), (True, Source.REVIEWS)]
        )
    ]

    def notes(count: int) -> str:
        table = approvals_of(Evidence(proposals=tuple(proposals[:count])))
        return "\n".join(approvals_table(table, catalog).notes)

    assert all(text in notes(2) for text in wanted)
    assert "2/2" not in notes(2)  # neither wrong nor right
    assert "0/2" not in notes(2)
    assert not [word for word in ("approv", "card", "승인", "카드") if word in notes(2).lower()]
    assert "t 1/1" in notes(3)


def test_one_tool_may_be_given_by_its_name() -> None:
    assert [row.tool for row in approvals(run_of(records_of("log", 9)), tools="log").tools] == [
        "log"
    ]


def run_of(records: Sequence[SampleRecord]) -> Run:
    return Run(records=records, manifest=manifest("log"))


@pytest.mark.longer
@pytest.mark.parametrize("catalog", [ENGLISH, KOREAN], ids=["en", "ko"])
def test_reports_have_the_section_where_a_tool_writes(catalog: Any) -> None:
    run, title = run_of(records_of("log", 9)), catalog.text("report.approvals")
    assert f"### {title}" in markdown(run, catalog, name="x")
    assert title in html_page(run, catalog, name="x")
    reads = Run(records=[sample()], manifest=Manifest(toolset="notes"))
    assert title not in markdown(reads, catalog, name="x")
