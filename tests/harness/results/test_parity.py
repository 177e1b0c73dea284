"""Two runtimes side by side: a planted difference is named as what it is, and nothing else is."""

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.console import Console

from lhkit.commands.options import ParityOptions
from lhkit.commands.parity import parity_runs
from lhkit.errors import ModelError, UsageError
from lhkit.harness.log import RECORDS, footprint_of
from lhkit.harness.parity import (
    NOT_ASKED,
    CallKind,
    Cause,
    Parity,
    forced,
    is_greedy_by,
    parity,
    with_odds,
)
from lhkit.harness.record import (
    Evidence,
    Judgement,
    ModelCallRecord,
    SampleId,
    SampleRecord,
    TurnRecord,
    Verdict,
    encode_record,
)
from lhkit.harness.report.parity import facts_of, parity_markdown, parity_page, parity_table
from lhkit.harness.results import Run
from lhkit.locales import load_catalog
from lhkit.messages import EndReason, Finished, Footprint, ModelIdentity, Timing, ToolCall, Usage
from lhkit.models.served import connect
from lhkit.models.serving import alias_of
from lhkit.settings import Settings, load_settings
from lhkit.text import seconds
from tests.models.fake_llama_cpp import FakeLlamaCpp
from tests.models.fake_vllm import FakeVllm, answers, models

SERVED = ModelIdentity(model="gemma", server="vllm 0.32", weights_sha256="1" * 64, dtype="bfloat16")
CALL = ToolCall(name="add", args={"x": 1})


def reply(text: str = "done.", **changes: Any) -> Finished:
    """Return a reply of five tokens to a prompt of seven that begins with <bos>, the id 2."""
    plain = Finished(
        reason="stop",
        text=text,
        raw_text=text,
        token_ids=tuple(map(ord, text)),
        prompt_token_ids=(2, 105),
        prompt_sha256="p" * 64,
        prompt_ids_sha256="i" * 64,
        usage=Usage(prompt_tokens=7, completion_tokens=5),
        timing=Timing(first_token_s=0.1, last_token_s=0.5),
        identity=SERVED,
    )
    return replace(plain, **changes)


def run(*samples: tuple[Finished, ...], verdicts: str = "", name: str = "", **manifest: Any) -> Run:
    """Return a run of samples s0, s1 …, a turn a reply; `verdicts` has a letter of each."""
    letters = {"p": Verdict.PASS, "f": Verdict.FAIL, "i": Verdict.INVALID}
    records = tuple(
        SampleRecord(
            sample_id=SampleId(scenario=f"s{number}"),
            content_hash="q",
            ac="AC-1",
            locale="en",
            judgement=Judgement(verdict=letters[verdicts[number] if verdicts else "p"]),
            evidence=Evidence(
                turns=tuple(
                    TurnRecord(
                        user="please",
                        ended=EndReason.ANSWERED,
                        model_calls=(ModelCallRecord(response=each),),
                        duration_s=1.0,
                    )
                    for each in replies
                )
            ),
        )
        for number, replies in enumerate(samples)
    )
    return Run(records=records, manifest=manifest, name=name)


def told(a: Finished, b: Finished) -> Parity:
    return parity(run((a,), name="served"), run((b,), name="phone"))


def causes(found: Parity) -> set[tuple[Cause, str | None]]:
    return {(each.cause, each.side) for each in (*found.prompts, *found.ends)}


def test_two_runs_that_said_the_same_differ_in_nothing() -> None:
    """Even where one server lists the token that ended a reply and the other does not."""
    found = told(reply(), reply(token_ids=(*map(ord, "done."), 106)))
    assert (found.divergences, found.flips, causes(found)) == ((), 0, set())
    assert found.replies == 1


def test_the_first_reply_that_differs_is_named_with_its_first_token_and_both_ends() -> None:
    a, b = reply("add 1 now"), reply("add 2 now", reason="length")
    found = parity(run((reply(), a, reply("x"))), run((reply(), b, reply("y"))))
    (each,) = found.divergences
    assert (each.turn, each.request, each.chars, each.token) == (1, 0, 4, 4)
    assert each.ids == (ord("1"), ord("2"))
    assert (each.before, each.said) == ("add ", ("1 now", "2 now"))
    assert each.reasons == ("stop", "length")
    assert found.replies == 2  # behind it the conversations are others


def test_without_token_ids_it_is_the_first_character_and_the_report_says_what_lacks() -> None:
    found = told(reply("add 1", token_ids=()), reply("add 2"))
    assert (found.divergences[0].token, found.divergences[0].chars) == (None, 4)
    assert "token_ids" in found.unknown
    assert "token_ids" not in told(reply("add 1"), reply("add 2")).unknown


def test_a_side_that_was_not_asked_any_more_has_no_reason() -> None:
    found = parity(run((reply(), reply("more"))), run((reply(),)))
    (each,) = found.divergences
    assert (each.turn, each.reasons, each.said) == (1, ("stop", NOT_ASKED), ("more", ""))


def test_replies_of_different_turns_are_not_set_against_each_other() -> None:
    """One side asked the model once more in the first turn, where the other went on to the next."""
    two_turns = run((reply("one"), reply("two")))
    (record,) = two_turns.records
    first, second = record.evidence.turns
    both = replace(first, model_calls=(*first.model_calls, *second.model_calls))
    one_turn = replace(
        two_turns, records=(replace(record, evidence=Evidence(turns=(both,))),)
    )  # fmt: skip
    (each,) = parity(two_turns, one_turn).divergences
    assert (each.turn, each.request, each.said) == (0, 1, ("", "two"))
    assert each.reasons == (NOT_ASKED, "stop")


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (reply("a", calls=(CALL,)), reply("b", calls=(CALL,)), CallKind.SAME),
        (
            reply("a", calls=(CALL,)),
            reply("b", calls=(ToolCall(name="add", args={"x": 2}),)),
            CallKind.ARGUMENT,
        ),
        (
            reply("a", calls=(CALL,)),
            reply("b", calls=(ToolCall(name="list", args={"x": 1}),)),
            CallKind.TOOL,
        ),
        (reply("a", calls=(CALL,)), reply("b", calls=(CALL, CALL)), CallKind.TOOL),
        (reply("a", calls=(CALL,)), reply("b"), CallKind.NONE),
        (reply("a", calls=(CALL,)), reply("b", fragment='{"name'), CallKind.CUT),
    ],
)
def test_calls_differ_by_kind(a: Finished, b: Finished, kind: CallKind) -> None:
    assert told(a, b).calls == {kind: 1}


@pytest.mark.parametrize(
    ("planted", "cause", "side"),
    [
        ({"prompt_token_ids": (2, 2)}, Cause.START_TWICE, "b"),
        ({"prompt_token_ids": (105, 7)}, Cause.NO_START, "b"),
        (
            {"usage": Usage(prompt_tokens=8), "prompt_ids_sha256": ""},
            Cause.PROMPT_TOKENS,
            None,
        ),
        ({"prompt_ids_sha256": "o" * 64}, Cause.PROMPT_TOKENS, None),
        ({"prompt_sha256": "o" * 64}, Cause.PROMPT_TEXT, None),
        ({"raw_text": "done.<end_of_turn>\nuser"}, Cause.RAN_ON, "b"),
        (
            {"raw_text": "done. and on", "token_ids": tuple(map(ord, "done. and on"))},
            Cause.RAN_ON,
            "b",
        ),
        ({"raw_text": "do", "truncated": True, "reason": "length"}, Cause.LIMIT, "b"),
        ({"raw_text": "do", "token_ids": (*map(ord, "do"), 106)}, Cause.CHOSE_END, "b"),
        ({"raw_text": "do", "token_ids": ()}, Cause.ENDED, "b"),
    ],
)
def test_a_planted_difference_is_named_as_what_it_is(
    planted: dict[str, Any], cause: Cause, side: str | None
) -> None:
    assert causes(told(reply(), reply(**planted))) == {(cause, side)}
    mirrored = {"a": "b", "b": "a"}.get(side or "")
    assert causes(told(reply(**planted), reply())) == {(cause, mirrored)}


def test_by_how_many_tokens_one_text_grew_is_counted() -> None:
    others = {"prompt_ids_sha256": "o" * 64}
    found = told(reply(), reply(**others, usage=Usage(prompt_tokens=8)))
    assert found.more_tokens == {1: 1}
    assert told(reply(), reply(**others)).more_tokens == {}  # other ones, as many
    assert causes(told(reply(), reply(usage=Usage()))) == set()  # a server that does not count


def test_what_nobody_recorded_is_said_to_be_not_known() -> None:
    bare = Finished(reason="stop", raw_text="hi", text="hi")
    assert told(bare, bare).unknown == (
        *("prompt_text", "prompt_ids", "token_ids", "weights", "dtype"),
        *("probabilities", "start", "memory", "size"),
    )
    assert told(reply(), reply()).unknown == ("probabilities", "start", "memory", "size")
    assert causes(told(bare, replace(bare, raw_text="ho"))) == set()


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_other_weights_precision_sampling_and_server_are_told_from_the_manifests(
    locale: str,
) -> None:
    a, b = (
        {"models": [{"model": "gemma", "weights": weights, "dtype": dtype, "server": server}],
         "sampling": [{"temperature": temperature}]}
        for weights, dtype, server, temperature in (
            ("tuned", "bfloat16", "vllm 0.32", 0.0), ("tuned.gguf", "Q2_K", "llama.cpp b1", 0.7)
        )
    )  # fmt: skip
    catalog = load_catalog(locale)
    lines = list(facts_of(parity(run((reply(),), **a), run((reply(),), **b)), catalog))
    for what in ("tuned → tuned.gguf", "bfloat16 → Q2_K", "vllm 0.32 → llama.cpp b1", "0.0 → 0.7"):
        assert any(what in line for line in lines), what


PROMPTED = {"prompt_text": "<bos>add", "prompt_sha256": "p" * 64}


@pytest.mark.parametrize(
    ("odds", "is_tie"), [((-0.71, -0.72), True), ((-0.1, -3.0), False), ((-0.1, None), False)]
)
def test_a_tie_that_rounding_decides_is_told_apart_from_another_answer(
    odds: tuple[float, float | None], is_tie: bool
) -> None:
    found = told(reply("add 1", **PROMPTED), reply("add 2", **PROMPTED))
    (each,) = found.divergences
    assert (each.prompt_text, each.shared_ids) == ("<bos>add", tuple(map(ord, "add ")))
    assert each.is_tie is None
    asked = with_odds(found, {each.sample_id: odds}, server="vllm 0.32")
    assert asked.divergences[0].is_tie is is_tie
    assert "probabilities" not in asked.unknown
    lines = " ".join(facts_of(asked, load_catalog("en")))
    assert f"Asked vllm 0.32: in {'1/1 100%' if is_tie else '0/1 0%'}" in lines
    assert "log-probabilities -0." in shown(asked)


GREEDY = {"sampling": [{"temperature": 0.0}]}


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_a_server_that_does_not_write_its_own_likeliest_token_has_another_sampler(
    locale: str,
) -> None:
    """Asked for the likeliest it wrote 7, which it holds for clearly less likely, and 8, a tie."""
    a = run((reply(),), name="served", **GREEDY)
    read = [((6, 7, 8), ({6: -0.1}, {7: -3.0, 9: -0.1}, {8: -0.8, 9: -0.7}))]
    catalog = load_catalog(locale)

    def said(*, is_own: bool) -> bool:
        found = replace(told(reply(), reply()), forced=(forced("s", read, is_own=is_own),))
        words = catalog.text("parity.other_sampler", name="served", count=1)
        return words in list(facts_of(found, catalog))

    assert is_greedy_by(a, SERVED)
    assert said(is_own=True)
    assert not said(is_own=False)
    assert forced("s", [((6,), ({6: -0.1},))], is_own=True).other_sampler == 0


@pytest.mark.parametrize(
    ("played", "server"),
    [
        (GREEDY, replace(SERVED, server="llama.cpp b1")),
        (GREEDY, replace(SERVED, weights_sha256="2" * 64)),
        (GREEDY, replace(SERVED, dtype="float32")),
        ({"sampling": [{"temperature": 0.7}]}, SERVED),
        ({}, SERVED),
    ],
)
def test_another_server_or_one_that_was_not_asked_for_the_likeliest_proves_no_sampler(
    played: dict[str, Any], server: ModelIdentity
) -> None:
    assert not is_greedy_by(run((reply(),), **played), server)


@pytest.mark.parametrize("change", [{"weights_sha256": ""}, {"constraint": "auto"}])
def test_weights_that_nobody_knows_or_a_constraint_prove_no_sampler(change: dict[str, str]) -> None:
    who = replace(SERVED, **change)
    assert not is_greedy_by(run((reply(identity=who),), **GREEDY), who)


def test_without_the_same_kept_prompt_nobody_can_be_asked() -> None:
    other = {**PROMPTED, "prompt_text": "<bos>other"}
    for a, b in ((reply("1"), reply("2")), (reply("1", **PROMPTED), reply("2", **other))):
        assert told(a, b).divergences[0].prompt_text == ""


def test_times_and_rates_stand_side_by_side() -> None:
    quick = reply(timing=Timing(first_token_s=0.1, last_token_s=0.3))
    found = told(reply(), quick)
    assert [each.tokens_per_s for each in found.speeds] == pytest.approx([10.0, 20.0])
    assert found.speeds[0].first_token.p50_s == pytest.approx(0.1)
    bare = Finished(reason="stop", raw_text="hi")
    assert [each.tokens_per_s for each in told(bare, bare).speeds] == [None, None]


def shown(found: Parity, locale: str = "en") -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(parity_table(found, load_catalog(locale)), soft_wrap=True)
    return str(console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


def took(played: int = 1, **footprint: float | None) -> dict[str, Any]:
    """Return an invocation as a manifest has it."""
    return {"played": played, "footprint": asdict(Footprint(**footprint))}  # type: ignore[arg-type] # the test's


MEASURED = {"start_s": 2.5, "memory_bytes": 1_200_000_000, "weights_bytes": 292_000_000}


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_start_memory_and_size_of_both_sides_stand_beside_each_other_in_all_that_is_shown(
    locale: str,
) -> None:
    pytest.importorskip("jinja2")
    slow = {"start_s": 50.0, "memory_bytes": 7_100_000_000, "weights_bytes": 536_000_000}
    found = parity(
        run((reply(),), name="served", invocations=[took(**slow)]),
        run((reply(),), name="phone", invocations=[took(**MEASURED)]),
    )
    assert found.unknown == ("probabilities",)
    catalog = load_catalog(locale)
    views = shown(found, locale), parity_page(found, catalog), parity_markdown(found, catalog)
    for view in views:
        words = (
            seconds(50.0),
            seconds(2.5),
            "x0.05",
            "7,100 MB",
            "1,200 MB",
            "x0.17",
            "536 MB",
            "292 MB",
        )
        for each in (*words, *(catalog.text(f"parity.{key}") for key in ("start", "memory"))):
            assert each in view, each
    sides = found.sides
    assert list(sides["run"]) == ["served", "phone"]
    assert list(sides["memory_bytes"]) == [7_100_000_000, 1_200_000_000]
    assert (str(sides["memory_bytes"].dtype), str(sides["start_s"].dtype)) == ("Int64", "float64")


def test_what_one_side_does_not_know_is_left_empty_and_said_once() -> None:
    one = run((reply(),), name="served", invocations=[took(**MEASURED)])
    older = run((reply(),), name="phone", invocations=[{"played": 1}])
    found = parity(one, older)
    assert found.unknown == ("probabilities", "start", "memory", "size")
    assert "1,200 MB" in shown(found)
    assert found.sides["memory_bytes"].isna().tolist() == [False, True]
    assert all("MB" not in line for line in shown(parity(older, older)).splitlines())


@pytest.mark.parametrize(
    ("invocations", "memory"),
    [
        ([took(**MEASURED), took(**MEASURED | {"memory_bytes": 9})], 1_200_000_000),
        ([took(weights_bytes=1, memory_bytes=9), took(**MEASURED)], 1_200_000_000),
        ([took(**MEASURED), took(weights_bytes=1, memory_bytes=9)], 9),  # other weights since
        ([took(**MEASURED), took(0, memory_bytes=5)], 1_200_000_000),  # it played nothing
        ([took(**MEASURED), {"played": 3, "footprint": None}], 1_200_000_000),
        ([{"played": 1, "footprint": {"memory_bytes": "much"}}], None),
        ([{"footprint": 5}, {"played": 1, "footprint": [1]}], None),
        ([], None),
    ],
)
def test_the_memory_of_a_run_is_the_most_of_its_invocations_with_the_same_weights(
    invocations: list[dict[str, Any]], memory: int | None
) -> None:
    assert footprint_of({"invocations": invocations}).memory_bytes == memory


def test_a_frame_has_a_row_for_each_sample_that_parts_and_the_same_types_without_any() -> None:
    a, b = reply("add 1", **PROMPTED), reply("add 2", **PROMPTED)
    found = parity(run((a,), (reply(),)), run((b,), (reply(),), verdicts="fp"))
    asked = with_odds(found, {found.divergences[0].sample_id: (-0.7, -0.8)}, server="vllm")
    (row,) = asked.differing.to_dict("records")
    assert (row["scenario"], row["verdict_a"], row["verdict_b"]) == ("s0", "pass", "fail")
    assert (row["token"], row["id_a"], row["id_b"]) == (4, ord("1"), ord("2"))
    assert (row["said_a"], row["said_b"], row["calls"], row["tie"]) == ("1", "2", "same", True)
    assert found.differing["tie"].isna().all()
    empty = told(reply(), reply()).differing
    assert len(empty) == 0
    assert list(empty.dtypes) == list(asked.differing.dtypes)


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_the_page_says_nothing_of_a_side_that_wrote_nothing_and_of_a_beginning_that_is_none(
    locale: str,
) -> None:
    pytest.importorskip("jinja2")
    catalog = load_catalog(locale)
    silent = parity_page(told(reply("add 1"), reply("")), catalog)
    assert f"<td>{catalog.text('parity.nothing')}</td>" in silent
    assert catalog.text("parity.before") not in silent
    assert catalog.text("parity.before") in parity_page(
        told(reply("add 1"), reply("add 2")), catalog
    )


ATTACK = "<script>x()</script> | `y` [z](http://z)\x1b[31m"


@pytest.mark.parametrize("locale", ["ko", "en"])
def test_terminal_page_and_markdown_show_the_same_and_run_nothing(locale: str) -> None:
    pytest.importorskip("jinja2")
    catalog = load_catalog(locale)
    a, b = run((reply("add 1"),), verdicts="p", name="served"), run(
        (reply("add 2 " + ATTACK),), verdicts="f", name="phone <b>"
    )  # fmt: skip
    found = parity(a, b)
    page, text, terminal = (
        parity_page(found, catalog),
        parity_markdown(found, catalog),
        shown(found, locale),
    )
    for each in (page, text, terminal):
        assert "s0" in each
        assert catalog.text("parity.call.same") in each
        assert "\x1b[31m" not in each
    assert "pass → fail" in terminal
    assert "x()" in page
    assert "<script>x()" not in page
    assert "phone <b>" not in page
    assert all(line.count("`") >= 2 for line in text.splitlines() if "x()" in line)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("LHKIT_LOCALE", "en")
    monkeypatch.setenv("LHKIT_CACHE_DIR", str(tmp_path / "cache"))
    return load_settings()


def kept(folder: Path, played: Run) -> Path:
    folder.mkdir()
    lines = (f"{encode_record(record)}\n" for record in played.records)
    (folder / RECORDS).write_text("".join(lines), encoding="utf-8")
    (folder / "manifest.json").write_text(json.dumps({}), encoding="utf-8")
    return folder


@pytest.mark.anyio
@pytest.mark.parametrize(
    "case",
    [
        ("pppf", {}, 0, ""),
        ("pfpf", {"max_flips": 1}, 0, ""),
        ("pffp", {"max_flips": 2}, 1, "3 verdicts differ, and at most 2 may."),
        ("pffp", {"max_lost_points": 25}, 0, ""),
        ("pfff", {"max_lost_points": 49.5}, 1, "50.0 points were lost, and at most 49.5 may be."),
        ("pipf", {"max_flips": 9}, 3, "Not every sample"),
        ("ppp", {"max_flips": 9}, 3, "Not every sample"),
        ("pip", {}, 0, ""),
    ],
)
async def test_a_limit_that_is_passed_or_cannot_be_judged_is_an_exit_code(
    case: tuple[str, dict[str, Any], int, str],
    tmp_path: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verdicts, limits, code, said = case
    a = kept(tmp_path / "a", run(*[(reply(),)] * 4, verdicts="pppf"))
    b = kept(tmp_path / "b", run(*[(reply(),)] * len(verdicts), verdicts=verdicts))
    options = ParityOptions(
        run_a=a, run_b=b, markdown=tmp_path / "parity.md", html=tmp_path / "parity.html", **limits
    )
    assert await parity_runs(options, settings) == code
    assert said in capsys.readouterr().out
    assert (tmp_path / "parity.md").read_text(encoding="utf-8").startswith("## Parity: `a` and `b`")
    assert "<title>Parity: a and b</title>" in (tmp_path / "parity.html").read_text("utf-8")


@pytest.mark.anyio
async def test_a_server_is_asked_how_likely_both_tokens_were(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM and llama.cpp are asked in their own words; both get the ids up to the difference."""
    a = kept(tmp_path / "a", run((reply("ab", **PROMPTED),), name="a"))
    b = kept(tmp_path / "b", run((reply("ac", **PROMPTED),), name="b"))
    bodies: list[Any] = []

    async def vllm(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        odds = {"token_id:98": -0.5, "token_id:99": -0.6}
        return web.json_response({"choices": [{"logprobs": {"top_logprobs": [odds]}}]})

    async def llama(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        odds = [{"id": 98, "logprob": -0.5}, {"id": 99, "logprob": -0.6}]
        return web.json_response({"completion_probabilities": [{"top_logprobs": odds}]})

    async def ids(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"tokens": [2, 105]})

    servers = (
        FakeVllm(routes={"/tokenize": ids, "/v1/completions": vllm}),
        FakeLlamaCpp(**{"/tokenize": ids, "/completion": llama}),
    )
    for fake in servers:
        async with fake as server:
            options = ParityOptions(run_a=a, run_b=b, ask=server.base_url)
            assert await parity_runs(options, settings) == 0
        assert "nearly a tie (log-probabilities -0.50 / -0.60)" in capsys.readouterr().out
    assert [each["prompt"] for each in bodies] == [[2, 105, ord("a")]] * 2


@pytest.mark.anyio
@pytest.mark.parametrize(("temperature", "is_proven"), [(0.0, True), (0.7, False)])
async def test_the_first_runs_own_server_tells_that_it_samples_otherwise_than_it_was_asked_to(
    temperature: float,
    is_proven: bool,
    tmp_path: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def vllm(_request: web.Request) -> web.StreamResponse:
        along = [{"97": {"logprob": -3.0}, "7": {"logprob": -0.1}}]
        return web.json_response({"choices": [{"prompt_logprobs": [None, {}, *along]}]})

    async def ids(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"tokens": [2, 105]})

    routes = {
        "/v1/models": models("gemma", alias_of("1" * 64)),
        "/tokenize": ids,
        "/v1/completions": vllm,
    }
    async with FakeVllm(routes=routes) as server:
        model = await connect(server.base_url)
        await model.aclose()
        a = kept(tmp_path / "a", run((reply("a", identity=model.identity, **PROMPTED),)))
        (a / "manifest.json").write_text(json.dumps({"sampling": [{"temperature": temperature}]}))
        await parity_runs(ParityOptions(run_a=a, run_b=a, score=(server.base_url,)), settings)
    said = " ".join(capsys.readouterr().out.split())
    assert ("its sampler is another" in said) == is_proven


@pytest.mark.anyio
async def test_servers_read_all_that_the_first_run_said_and_tell_how_far_they_agree(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reply is three tokens. Each server would have chosen the first, the second by a hair."""
    a = kept(tmp_path / "a", run((reply("abc", **PROMPTED),), name="a"))
    b = kept(tmp_path / "b", run((reply("x", **PROMPTED),), name="b"))
    told = ({97: -0.1}, {98: -0.9, 7: -0.8}, {99: -3.0, 7: -0.1})
    bodies: list[Any] = []

    async def vllm(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        along = [{str(token): {"logprob": odds} for token, odds in each.items()} for each in told]
        return web.json_response({"choices": [{"prompt_logprobs": [None, {}, *along]}]})

    async def llama(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        likely = told[len(bodies[-1]["prompt"]) - 2]
        odds = [{"id": token, "logprob": each} for token, each in likely.items()]
        return web.json_response({"completion_probabilities": [{"top_logprobs": odds}]})

    async def ids(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"tokens": [2, 105]})

    async with (
        FakeVllm(routes={"/tokenize": ids, "/v1/completions": vllm}) as one,
        FakeLlamaCpp(**{"/tokenize": ids, "/completion": llama}) as other,
    ):
        options = ParityOptions(
            run_a=a, run_b=b, score=(one.base_url, other.base_url), markdown=tmp_path / "p.md"
        )
        assert await parity_runs(options, settings) == 0
    said = " ".join(capsys.readouterr().out.split())
    agreed = (
        "read what a said (1 reply), token by token: it would have chosen 1/3 33% of the tokens"
    )
    assert said.count(f"{agreed} itself, and of the other 2 1 are nearly ties.") == 2
    assert "llama.cpp b11549-abc gemma" in said
    assert agreed in (tmp_path / "p.md").read_text(encoding="utf-8")
    reply_ids = [97, 98, 99]
    assert [each["prompt"] for each in bodies] == [
        [2, 105, *reply_ids],
        *([2, 105, *reply_ids[:place]] for place in range(3)),
    ]


@pytest.mark.anyio
async def test_a_server_that_tells_nothing_of_a_prompts_tokens_is_named(
    tmp_path: Path, settings: Settings
) -> None:
    a = kept(tmp_path / "a", run((reply("ab", **PROMPTED),)))
    routes = {
        "/tokenize": answers(200, json.dumps({"tokens": [2]})),
        "/v1/completions": answers(200, json.dumps({"choices": [{"text": "a"}]})),
    }
    async with FakeVllm(routes=routes) as server:
        with pytest.raises(ModelError, match="prompt_logprobs"):
            await parity_runs(ParityOptions(run_a=a, run_b=a, score=(server.base_url,)), settings)


@pytest.mark.anyio
async def test_runs_without_prompts_cannot_be_asked_about(
    tmp_path: Path, settings: Settings
) -> None:
    a = kept(tmp_path / "a", run((reply("ab"),)))
    b = kept(tmp_path / "b", run((reply("ac"),)))
    with pytest.raises(UsageError, match="--keep-prompts"):
        await parity_runs(ParityOptions(run_a=a, run_b=b, ask="http://127.0.0.1:9"), settings)
    with pytest.raises(UsageError, match="--keep-prompts"):
        await parity_runs(ParityOptions(run_a=a, run_b=b, score=("http://127.0.0.1:9",)), settings)
