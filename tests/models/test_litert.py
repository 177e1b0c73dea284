"""lhkit's server around LiteRT-LM, and the client that speaks to it, with an engine that is played.

The real engine has tests of its own: `evals/baselines/runtimes.md` says how they are run.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lhkit.commands.options import ServeOptions
from lhkit.commands.serve import serve_model
from lhkit.errors import (
    ContextTooLongError,
    MissingPackageError,
    ModelError,
    RequestRefusedError,
    UsageError,
)
from lhkit.messages import Finished, Sampling, TextDelta, UserMessage
from lhkit.models import litert
from lhkit.models.base import ModelRequest
from lhkit.models.http import Endpoint
from lhkit.models.litert import LiteRtSettings
from lhkit.models.litert_serving import Served, StopTexts, quantisation_of
from lhkit.models.openai import OpenAiHttp
from lhkit.models.served import connect, fitting_concurrency
from lhkit.models.serving import alias_of
from lhkit.models.vllm import VllmHttp
from lhkit.settings import Settings
from tests.models.fake_litert import ENDLESS, FAULT, FULL, FakeEngine, LiteRtServed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),
    pytest.mark.promise("runtimes.litert"),
]


def asked(text: str = "안녕", *, max_tokens: int = 64) -> ModelRequest:
    return ModelRequest(
        messages=(UserMessage(text=text),),
        instructions="비서",
        sampling=Sampling(max_tokens=max_tokens),
    )


@asynccontextmanager
async def connected(engine: FakeEngine, served: Served | None = None) -> AsyncIterator[VllmHttp]:
    async with LiteRtServed(engine, served) as server:
        model = await connect(Endpoint(base_url=server.base_url, retries=0))
        assert isinstance(model, VllmHttp)
        async with aclosing(model):
            yield model


async def answered(model: VllmHttp, request: ModelRequest | None = None) -> Finished:
    events = [each async for each in model.stream(request or asked())]
    last = events[-1]
    assert isinstance(last, Finished)
    return last


async def posted(engine: FakeEngine, **body: Any) -> tuple[int, dict[str, Any]]:
    async with (
        LiteRtServed(engine) as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.base_url}/v1/completions", json=body) as response,
    ):
        return response.status, await response.json()


async def test_it_tells_engine_build_threads_quantisation_and_the_hash_of_the_file() -> None:
    sha256 = "a" * 64
    served = Served(names=("tuned", alias_of(sha256)), file="t.litertlm", quantisation="int8")
    async with connected(FakeEngine(), served) as model:
        told = model.identity
    assert (told.model, told.weights, told.weights_sha256) == ("tuned", "t.litertlm", sha256)
    assert told.server == "litert-lm 0.18.1-0123456789ab (2 threads)"
    assert told.dtype == "int8"
    assert told.is_sure
    assert fitting_concurrency(told) == 1


async def test_the_prompt_has_exactly_one_start_token_though_the_engine_adds_its_own() -> None:
    engine = FakeEngine(["네."])
    async with connected(engine) as model:
        last = await answered(model)
    assert last.prompt_text.startswith("<bos><start_of_turn>")
    assert engine.prompts == [list(last.prompt_token_ids)]
    assert engine.prompts[0][:2] == [2, 105]
    assert engine.prompts[0].count(2) == 1
    assert last.usage.prompt_tokens == len(engine.prompts[0])


async def test_what_the_engine_does_not_tell_is_left_empty() -> None:
    engine = FakeEngine(["네", "."], ["네", "."])
    async with connected(engine) as model:
        last = await answered(model)
        assert (last.raw_text, last.token_ids, last.usage.completion_tokens) == ("네.", (), 3)
        assert last.server_metrics is None
        engine.miscounts = 1  # then nobody knows which tokens it read
        assert (await answered(model)).prompt_token_ids == ()


async def test_it_ends_where_the_engine_does_and_where_the_limit_cuts() -> None:
    async with connected(FakeEngine(["하", "나"], list("하나둘셋넷"), ["하", FULL])) as model:
        ended, cut, full = [await answered(model, asked(max_tokens=4)) for _ in range(3)]
    assert (ended.reason, ended.truncated, ended.usage.completion_tokens) == ("stop", False, 3)
    assert (cut.raw_text, cut.reason, cut.usage.completion_tokens) == ("하나둘셋", "length", 4)
    assert (full.raw_text, full.reason, full.truncated) == ("하", "length", True)


@pytest.mark.parametrize("reply", ["하나둘", "a b"])
async def test_an_end_that_is_the_last_token_that_may_be_written_is_an_end(reply: str) -> None:
    async with connected(FakeEngine(list(reply), list(reply))) as model:
        ended, cut = [await answered(model, asked(max_tokens=most)) for most in (4, 3)]
    assert (ended.raw_text, ended.reason) == (reply, "stop")
    assert (cut.raw_text, cut.reason) == (reply, "length")


async def test_a_reply_that_the_limit_cuts_within_a_letter_is_cut() -> None:
    """Half a letter is told as one sign, whatever number of tokens it is of."""
    async with connected(FakeEngine(["하", "\ufffd", FULL])) as model:
        cut = await answered(model, asked(max_tokens=3))
    assert (cut.reason, cut.truncated) == ("length", True)


async def test_a_stop_token_that_the_file_does_not_have_ends_it_by_its_text() -> None:
    """The dialect of life-helper also stops where a turn begins."""
    pieces = ["네", ".", "<start", "_of_", "turn>", "user", ENDLESS]
    async with connected(FakeEngine(pieces, ["또"])) as model:
        last = await answered(model)
        assert (last.raw_text, last.reason) == ("네.", "stop")
        assert (await answered(model)).raw_text == "또"


async def test_words_come_in_order_and_whole() -> None:
    pieces = ["안", "녕", " 👩‍👩‍👧", "😀", "!", "뷁"]
    async with connected(FakeEngine(pieces)) as model:
        events = [each async for each in model.stream(asked())]
    assert [each.text for each in events if isinstance(each, TextDelta)] == pieces


async def test_what_was_read_before_is_not_read_again() -> None:
    engine = FakeEngine(["하나"], ["둘"], ["셋"])
    async with connected(engine) as model:
        first = await answered(model, asked("물 마셨어"))
        second = await answered(model, asked("물 마실래"))
        third = await answered(model, asked("물 마셨어"))
    assert engine.prompts[0] == engine.prompts[2] == list(first.prompt_token_ids)
    assert engine.prompts[1] == list(second.prompt_token_ids)
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, engine.rewound[0])
    assert engine.read_texts[1].startswith("실래")
    assert third.prompt_token_ids == first.prompt_token_ids


async def test_a_text_is_cut_only_where_its_rest_falls_into_the_same_tokens() -> None:
    """Two line ends are one token: behind the first of them the second is another."""
    engine = FakeEngine(["하나"], ["둘"])
    async with connected(engine) as model:
        await answered(model, asked("가\n나"))
        last = await answered(model, asked("가\n\n나"))
    assert engine.prompts[1] == list(last.prompt_token_ids)
    assert 108 in engine.prompts[1]
    assert engine.read_texts[1].startswith("\n\n나")


class PrefixedEngine(FakeEngine):
    """As a vocabulary that has other tokens for the begin of a text than for its midst."""

    def tokens(self, text: str) -> list[int]:
        first, *rest = super().tokens(text)
        return [first + 100_000 if first > 1000 else first, *rest]


async def test_where_the_rest_would_fall_into_others_more_is_read_again() -> None:
    engine = PrefixedEngine(["하나"], ["둘"])
    async with connected(engine) as model:
        await answered(model, asked("물 마셨어"))
        last = await answered(model, asked("물 마실래"))
    assert engine.prompts[1] == list(last.prompt_token_ids)
    assert engine.read_texts[1].startswith("\n")
    assert "물 마실래" in engine.read_texts[1]


async def test_a_session_that_cannot_be_rewound_makes_room_for_one_that_reads_all() -> None:
    engine = FakeEngine(["하나"], ["둘"])
    engine.cannot_rewind = True
    async with connected(engine) as model:
        await answered(model)
        last = await answered(model)
    assert (last.raw_text, last.usage.cached_tokens) == ("둘", 0)
    assert engine.prompts[0] == engine.prompts[1] == list(last.prompt_token_ids)


async def test_another_limit_of_tokens_is_another_session_and_the_old_one_is_closed() -> None:
    engine = FakeEngine(["하나"], list("둘셋넷"))
    async with connected(engine) as model:
        await answered(model, asked(max_tokens=64))
        last = await answered(model, asked(max_tokens=2))
        assert engine.open_sessions == 1
    assert (last.raw_text, engine.rewound) == ("둘셋", [])
    assert engine.open_sessions == 0


async def test_leaving_early_frees_the_engine_for_the_next() -> None:
    engine = FakeEngine(["하", ENDLESS], ["하", ENDLESS], ["둘"])
    async with connected(engine) as model:
        for _ in range(2):
            async with aclosing(model.stream(asked())) as events:  # type: ignore[type-var]
                await anext(events)
        assert (await answered(model)).raw_text == "둘"
    assert engine.prompts[0] == engine.prompts[2]


async def test_one_is_answered_at_a_time_and_the_others_wait() -> None:
    engine = FakeEngine(*[list("하나둘셋")] * 4)
    async with connected(engine) as model:
        requests = [asked(f"습관 {number}") for number in range(4)]
        replies = await asyncio.gather(*(answered(model, each) for each in requests))
    assert engine.most_at_once == 1
    assert {each.raw_text for each in replies} == {"하나둘셋"}
    assert sorted(engine.prompts) == sorted(list(each.prompt_token_ids) for each in replies)


async def test_an_engine_that_fails_is_a_typed_fault_and_the_next_begins_anew() -> None:
    engine = FakeEngine([FAULT], ["네", FAULT], ["또"])
    async with connected(engine) as model:
        for _ in range(2):
            with pytest.raises(ModelError):
                await answered(model)
        assert engine.open_sessions == 0
        assert (await answered(model)).raw_text == "또"


async def test_a_prompt_that_is_too_long_is_a_typed_fault() -> None:
    async with connected(FakeEngine(["네"], context_tokens=64)) as model:
        with pytest.raises(ContextTooLongError):
            await answered(model, asked("아주 길다. " * 20))
        assert (await answered(model)).raw_text == "네"


async def test_a_full_context_cuts() -> None:
    engine = FakeEngine(*[list("하나둘")] * 3)
    async with connected(engine) as model:
        first = await answered(model)
        engine.context_tokens = first.usage.prompt_tokens + 3
        cut = await answered(model)
        engine.context_tokens += 1
        whole = await answered(model)
    assert (cut.reason, whole.reason) == ("length", "stop")
    assert cut.raw_text == whole.raw_text == "하나둘"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"prompt": [2, 105]}, "prompt: give one text"),
        ({"prompt": "hi", "temperature": 0.7}, "only 0 is served"),
        ({"prompt": "hi", "max_tokens": 0}, "from 1"),
        ({"prompt": "hi", "structured_outputs": {"regex": "a"}}, "has neither"),
        ({"prompt": "hi", "logprobs": 1}, "has neither"),
        ({"prompt": "hi", "model": "other"}, "`other` does not exist"),
        ({"prompt": "hi", "add_special_tokens": False}, "begin it with <bos>"),
        ({"prompt": "<bos>", "add_special_tokens": False}, "nothing to read"),
    ],
)
async def test_what_the_engine_cannot_do_is_refused_in_a_sentence(
    body: dict[str, Any], said: str
) -> None:
    status, told = await posted(FakeEngine(), **body)
    assert status == 400
    assert said in told["error"]["message"]


async def test_a_constraint_is_refused_before_anything_is_asked() -> None:
    async with LiteRtServed(FakeEngine()) as server:
        with pytest.raises(UsageError, match="--constrain off"):
            await connect(Endpoint(base_url=server.base_url, constraint="auto"))


async def test_without_a_stream_the_whole_answer_comes_at_once() -> None:
    status, told = await posted(
        FakeEngine(list("abcde")), prompt="hi", max_tokens=9, stop=["x", "d"]
    )
    assert status == 200
    (choice,) = told["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "stop")


async def test_a_temperature_is_refused_for_who_chats_too() -> None:
    async with connected(FakeEngine()) as model:
        request = ModelRequest(
            messages=(UserMessage(text="hi"),), sampling=Sampling(temperature=0.5)
        )
        with pytest.raises(RequestRefusedError, match="only 0 is served"):
            await answered(model, request)


async def test_ids_of_texts_are_told_and_turned_back() -> None:
    async with connected(FakeEngine()) as model:
        ids = await model.tokenize("<bos><start_of_turn>가")
        assert ids[:2] == (2, 105)
        assert await model.detokenize(ids) == "<bos><start_of_turn>가"


@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        (("ab",), ["xa", "by"], ["x"]),
        (("ab",), ["xa", "cy"], ["x", "acy"]),
        (("ab",), ["a"], ["a"]),
        (("aab",), ["aaa", "b"], ["a"]),
        (("b", "ab"), ["ab"], []),
        ((), ["a", "b"], ["a", "b"]),
        (("",), ["a"], ["a"]),
    ],
)
def test_nothing_of_a_stop_text_is_shown_and_nothing_else_is_lost(
    stops: Sequence[str], pieces: Sequence[str], shown: Sequence[str]
) -> None:
    texts = StopTexts(stops)
    told = [texts.feed(each) for each in pieces]
    assert [each for each in (*told, texts.close()) if each] == list(shown)


def test_the_quantisation_is_told_by_the_manifest_of_that_very_file(tmp_path: Path) -> None:
    file = tmp_path / "tuned.litertlm"
    file.write_bytes(b"weights")
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert quantisation_of(file, sha256) == ""
    manifest = {"to": "litertlm:int8", "file": {"sha256": sha256}}
    file.with_suffix(".json").write_text(json.dumps(manifest))
    assert quantisation_of(file, sha256) == "int8"
    assert quantisation_of(file, "b" * 64) == ""


async def served(file: str, *, dry_run: bool) -> int:
    options = ServeOptions(model=file, port=8099, dry_run=dry_run)
    return await serve_model(options, Settings())


async def test_a_litertlm_file_is_served_by_litert_lm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuned.litertlm"
    file.write_bytes(b"weights")
    assert await served(str(file), dry_run=True) == 0
    words = capsys.readouterr().out.split()
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert words[1:5] == ["-m", "lhkit.models.litert_serving", str(file), "8099"]
    assert words[6:] == [sha256, "tuned.litertlm", alias_of(sha256)]
    with pytest.raises(UsageError, match="there is no file"):
        await served("nowhere.litertlm", dry_run=True)


async def test_without_litert_lm_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tuned.litertlm"
    file.write_bytes(b"")
    monkeypatch.setattr(litert, "find_spec", lambda _name: None)
    with pytest.raises(MissingPackageError, match=r"lhkit\[litert\]"):
        await served(str(file), dry_run=False)


def test_it_never_meets_another_runtime_that_serves_the_same_name(tmp_path: Path) -> None:
    plan = LiteRtSettings(model=tmp_path / "x.litertlm", served_name="gemma", log_path=tmp_path)
    assert plan.found_as == "gemma.litert-lm"
    assert plan.arguments(1)[-2:] == ("-", "gemma")
    assert plan.environment()


async def test_the_chat_of_openai_is_refused_by_who_has_none() -> None:
    async with LiteRtServed(FakeEngine()) as server:
        model = await OpenAiHttp.connect(Endpoint(base_url=server.base_url, retries=0))
        async with aclosing(model):
            with pytest.raises(RequestRefusedError):
                _ = [each async for each in model.stream(asked())]
