"""Request fields that a server refuses are left out and recorded."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from lhkit.base.errors import ModelError, RequestRefusedError
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, Sampling
from lhkit.harness.running.run import replay
from lhkit.harness.scenarios.scenario import Scenario
from lhkit.models.base import ModelRequest
from lhkit.models.client.errors import refused_field
from lhkit.testing import echo_tool
from lhkit.tools.registry import ToolRegistry
from tests.models.fake_vllm import (
    NOT_FOUND,
    Behaviour,
    FakeVllm,
    answers,
    chat_completion,
    completion,
    connected,
    streams,
)
from tests.rows import check_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]

REQUEST = ModelRequest(messages=(UserMessage(text="안녕"),))
HELLO = streams(chat_completion([{"content": "네"}], token_ids=False))


def error(message: str, **more: Any) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", **more}})


NO_OPTIONS = error("Unrecognized request argument supplied: stream_options", param=None)
NO_MAX_TOKENS = error(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
    "'max_completion_tokens' instead.",
    param="max_tokens",
    code="unsupported_parameter",
)
NO_ZERO = error(
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) "
    "value is supported.",
    param="temperature",
    code="unsupported_value",
)


UNKNOWN = "max_completion_tokens"


def extra(*loc: Any, kind: str = "extra_forbidden") -> list[dict[str, Any]]:
    return [{"type": kind, "loc": loc, "msg": "Extra inputs are not permitted", "input": 1}]


@check_rows(
    ("body", "field"),
    [
        (NO_OPTIONS, "stream_options"),
        (json.dumps({"detail": extra("body", "stream_options")}), "stream_options"),
        (
            json.dumps({"error": {"message": "input", "details": extra("stream_options")}}),
            "stream_options",
        ),
        (
            json.dumps({"detail": extra("body", "max_tokens", kind="value_error.extra")}),
            "max_tokens",
        ),
        (
            json.dumps({"message": 'Bad request: json: unknown field "stream_options"\n'}),
            "stream_options",
        ),
        (error("stream_options: Extra inputs are not permitted"), "stream_options"),
        (
            error("azure_ai does not support parameters: ['seed', 'stream_options'], for model=m"),
            "stream_options",
        ),
        (
            error("Additional properties are not allowed ('stream_options' was unexpected)"),
            "stream_options",
        ),
        (json.dumps({"error": "`stream_options` is not yet supported"}), "stream_options"),
        (NO_MAX_TOKENS, "max_tokens"),
        (error("max_tokens is deprecated: use max_completion_tokens"), "max_tokens"),
        (error("Please use `max_completion_tokens` instead of `max_tokens`."), "max_tokens"),
        (error("Please use `max_tokens` instead of `max_completion_tokens`."), UNKNOWN),
        (error("`max_completion_tokens` is not supported: use max_tokens"), UNKNOWN),
        (json.dumps({"detail": extra("body", UNKNOWN)}), UNKNOWN),
        (
            error("unknown field `max_completion_tokens`, expected one of `model`, `max_tokens`"),
            UNKNOWN,
        ),
        (error("property 'max_completion_tokens' is unsupported"), UNKNOWN),
        (
            error(
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not "
                "supported.",
                param="max_tokens",
                code="invalid_parameter_combination",
            ),
            "max_tokens",
        ),
        (
            error(
                "The parameter `max_tokens` specified in the request are not valid: max_tokens and "
                "max_completion_tokens cannot be set at the same time"
            ),
            "max_tokens",
        ),
        (error("max_tokens and max_completion_tokens cannot both be set"), "max_tokens"),
        (error("max_completion_tokens and max_tokens are mutually exclusive"), UNKNOWN),
        (error("duplicate field `max_tokens`"), "max_tokens"),
        (NO_ZERO, "temperature"),
        (
            error("Unsupported parameter: 'temperature' is not supported with this model."),
            "temperature",
        ),
        (
            json.dumps(
                {"error": "Input validation error: `temperature` must be strictly positive"}
            ),
            "temperature",
        ),
        (error("temperature must be in (0, 2]"), "temperature"),
        (error("temperature should be at least 0.01"), "temperature"),
        (error("invalid temperature: only 1 is allowed for this model"), "temperature"),
        (json.dumps({"detail": extra("body", "temperature", kind="greater_than")}), "temperature"),
    ],
)
def test_refused_field_reads_the_unsupported_field(body: str, field: str) -> None:
    assert refused_field(body) == field


@check_rows(
    "body",
    [
        "",
        "[" * 100_000,
        error("max_tokens=9000 cannot be greater than max_model_len=8192"),
        error(
            "max_tokens is too large: 9000. This model supports at most 4096", param="max_tokens"
        ),
        error("max_tokens is not allowed to exceed 4096"),
        error("temperature must be between 0 and 2", param="temperature"),
        error("temperature must be non-negative, got -1.0"),
        error("Unrecognized request argument supplied: seed"),
        error("Unknown parameter: 'tools[0].stream_options'.", param="tools[0].stream_options"),
        error(
            "Invalid schema for function 'f': 'temperature' is not supported",
            param="tools[0].function.parameters",
        ),
        error("Invalid schema for function 'f': 'temperature' is not supported"),
        error("tools.0.function.parameters.temperature: Extra inputs are not permitted"),
        json.dumps({"detail": extra("body", "tools", 0, "function", "temperature")}),
        error("stream_options is not allowed when stream is false"),
        error("prompt is too long; lower max_tokens"),
        error(
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum "
            "context length is 8192 tokens and your request has 12 input tokens"
        ),
        error("max_completion_tokens must be an integer"),
    ],
)
def test_refused_field_is_empty_for_other_errors(body: str) -> None:
    assert refused_field(body) == ""


def picky(*refusals: tuple[str, int, str]) -> Behaviour:
    """Refuse bodies with these fields, in this order; answer the others."""

    async def behave(request: web.Request) -> web.StreamResponse:
        sent = await request.json()
        for field, status, body in refusals:
            if field in sent:
                return await answers(status, body)(request)
        return await HELLO(request)

    return behave


async def results_of(
    behaviour: Behaviour, *requests: ModelRequest
) -> tuple[list[Finished | ModelError], list[dict[str, Any]]]:
    results: list[Finished | ModelError] = []
    elsewhere = {"/version": answers(404, NOT_FOUND)}
    async with (
        FakeVllm(*[behaviour] * 20, routes=elsewhere) as server,
        connected(server, dialect="openai") as model,
    ):
        for request in requests:
            try:
                async for event in model.stream(request):
                    results += [event] if isinstance(event, Finished) else []
            except ModelError as failure:
                results.append(failure)
    return results, server.bodies


def fields_of(body: Mapping[str, Any]) -> set[str]:
    return {"stream_options", "max_tokens", "max_completion_tokens", "temperature"} & body.keys()


ALL = {"stream_options", "max_tokens", "max_completion_tokens", "temperature"}


@check_rows(
    ("refusals", "sent"),
    [
        ([("stream_options", 422, NO_OPTIONS)], ALL - {"stream_options"}),
        ([("max_tokens", 400, NO_MAX_TOKENS)], ALL - {"max_tokens"}),
        ([("temperature", 400, NO_ZERO)], ALL - {"temperature"}),
        (
            [
                ("max_tokens", 400, NO_MAX_TOKENS),
                ("temperature", 400, NO_ZERO),
                ("stream_options", 400, NO_OPTIONS),
            ],
            {"max_completion_tokens"},
        ),
    ],
)
async def test_client_leaves_out_a_refused_field_and_records_it(
    refusals: list[tuple[str, int, str]], sent: set[str]
) -> None:
    results, bodies = await results_of(picky(*refusals), REQUEST, REQUEST)
    first, second = results
    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert [fields_of(each) for each in bodies[-2:]] == [sent, sent]
    assert len(bodies) == len(refusals) + 2
    assert bodies[-1]["max_completion_tokens"] == 256
    refused = tuple(sorted(field for field, _, _ in refusals))
    assert (first.refused_fields, second.refused_fields) == (refused, refused)
    assert (first.timing.retries, second.timing.retries) == (len(refusals), 0)


def limited(
    *read: str,
    unknown: tuple[str, ...] = (),
    exclusive: str = "",
    unknown_text: str = "%s: unknown",
) -> Behaviour:
    """Count up to the output limit that the server reads, strictly or not."""

    async def behave(request: web.Request) -> web.StreamResponse:
        sent = await request.json()
        if exclusive and {"max_tokens", "max_completion_tokens"} <= sent.keys():
            return await answers(400, error(exclusive))(request)
        for name in unknown:
            if name in sent:
                return await answers(422, error(unknown_text % name))(request)
        limit = next((sent[name] for name in read if name in sent), 400)
        pieces: list[dict[str, Any]] = [{"content": f"{number} "} for number in range(limit)]
        return await streams(chat_completion(pieces, token_ids=False, tokens=limit))(request)

    return behave


OLD, NEW = "max_tokens", "max_completion_tokens"
TOGETHER = f"'{OLD}' and '{NEW}' cannot be set at the same time"


@pytest.mark.longer
@check_rows(
    ("server", "requests"),
    [
        (limited(OLD), 1),  # Ollama, older llama.cpp
        (limited(NEW), 1),  # LiteRT-LM
        (limited(NEW, OLD), 1),  # vLLM
        (limited(OLD, unknown=(NEW,)), 2),
        (limited(NEW, unknown=(OLD,)), 2),
        (limited(OLD, unknown=(NEW,), unknown_text=f"unknown field `%s`, expected `{OLD}`"), 2),
        (limited(NEW, unknown=(OLD,), unknown_text=f"%s is deprecated: use {NEW}"), 2),
        (limited(OLD, NEW, exclusive=TOGETHER), 2),
        (limited(NEW, OLD, exclusive=f"Only one of {NEW} and {OLD} may be given"), 2),
        (limited(NEW, unknown=(OLD,), exclusive=f"{NEW} conflicts with {OLD}"), 3),
        (limited(OLD, unknown=(NEW,), exclusive=f"duplicate field `{OLD}`"), 3),
    ],
)
async def test_client_sends_the_output_limit_that_the_server_reads(
    server: Behaviour, requests: int
) -> None:
    few = replace(REQUEST, sampling=Sampling(max_tokens=7))
    results, bodies = await results_of(server, few, few)
    for each in results:
        assert isinstance(each, Finished)
        assert (each.usage.completion_tokens, each.text) == (7, "0 1 2 3 4 5 6 ")
    assert len(bodies) == requests + 1


@pytest.mark.parametrize("names", [(OLD, NEW), (NEW, OLD)])
async def test_client_stops_when_every_name_of_the_limit_is_refused(names: tuple[str, str]) -> None:
    results, bodies = await results_of(limited(unknown=names), REQUEST)
    assert isinstance(results[0], RequestRefusedError)
    assert [fields_of(each) & {OLD, NEW} for each in bodies] == [{*names}, {names[1]}, {names[0]}]


async def test_client_leaves_out_a_temperature_only_if_it_is_zero() -> None:
    warm = replace(REQUEST, sampling=Sampling(temperature=0.7))
    results, bodies = await results_of(picky(("temperature", 400, NO_ZERO)), warm, REQUEST, warm)
    assert [type(each) for each in results] == [RequestRefusedError, Finished, RequestRefusedError]
    assert [each.get("temperature") for each in bodies] == [0.7, 0.0, None, 0.7]


async def test_run_records_the_refused_fields() -> None:
    turn = {"user": "Hello?", "reply": {"contains_any": ["네"]}}
    scenario = Scenario.from_data({"id": "hi", "ac": "a", "locale": "en", "turns": [turn]})
    behaviours = [picky(("max_tokens", 400, NO_MAX_TOKENS))] * 3
    async with (
        FakeVllm(*behaviours, routes={"/version": answers(404, NOT_FOUND)}) as server,
        connected(server, dialect="openai") as model,
    ):
        tools = ToolRegistry([echo_tool()])
        (record,) = (await replay([scenario], model, toolset=tools, progress=False)).records
    [made] = record.trajectory.turns[0].model_calls
    assert (record.score.verdict, made.response.refused_fields) == ("pass", ("max_tokens",))


@check_rows(
    ("status", "body"),
    [
        (400, error("max_tokens is too large: 9000", param="max_tokens", code="invalid_value")),
        (401, NO_OPTIONS),
        (403, NO_MAX_TOKENS),
        (404, NO_OPTIONS),
        (429, NO_OPTIONS),
        (500, NO_MAX_TOKENS),
        (400, error("This model's maximum context length is 8192 tokens. Use fewer max_tokens.")),
    ],
)
async def test_client_raises_other_errors_and_remembers_no_field(status: int, body: str) -> None:
    results, bodies = await results_of(picky(("stream", status, body)), REQUEST, REQUEST)
    assert all(isinstance(each, ModelError) for each in results)
    assert [fields_of(each) for each in bodies] == [ALL, ALL]


async def test_client_remembers_no_field_if_the_retry_is_refused() -> None:
    results, bodies = await results_of(picky(("stream", 400, NO_OPTIONS)), REQUEST, REQUEST)
    assert all(isinstance(each, RequestRefusedError) for each in results)
    less = ALL - {"stream_options"}
    assert [fields_of(each) for each in bodies] == [ALL, less, ALL, less]


async def test_completions_client_leaves_out_stream_options() -> None:
    async def behave(request: web.Request) -> web.StreamResponse:
        if "stream_options" in await request.json():
            return await answers(400, NO_OPTIONS)(request)
        return await streams(completion(["네"]))(request)

    async with FakeVllm(*[behave] * 3) as server, connected(server) as model:
        *_, last = [event async for event in model.stream(REQUEST)]
    assert isinstance(last, Finished)
    assert (last.text, last.refused_fields) == ("네", ("stream_options",))
