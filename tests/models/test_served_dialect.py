"""The dialect of a served model: given, of its family, or `openai` if the server parses calls."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from lhkit.base.errors import RequestRefusedError, UsageError
from lhkit.base.notices import NOTICE
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import ModelIdentity
from lhkit.models.base import ModelRequest
from lhkit.models.client.call_probe import PROBE_MESSAGES, PROBE_TOOLS
from lhkit.models.client.served import connect
from lhkit.models.client.transport import Endpoint
from lhkit.models.dialects import DIALECTS
from lhkit.models.families import call_formats, default_dialect, family_of, unfit_values
from tests.models.fake_llama_cpp import PROPS, FakeLlamaCpp
from tests.models.fake_vllm import (
    Behaviour,
    FakeVllm,
    answers,
    chat_call,
    chat_completion,
    completion,
    connected,
    models,
    streams,
)
from tests.rows import check_rows

pytestmark = pytest.mark.anyio

CALL = streams(
    chat_completion([{"tool_calls": [chat_call(0, "get_time", '{"city": "Seoul"}')]}], tokens=9)
)
TEXT = streams(chat_completion([{"content": "네, 안녕하세요."}], tokens=3))
NO_PARSER = answers(400, '{"error":{"message":"\\"auto\\" tool choice requires a parser"}}')
NO_JINJA = answers(500, '{"error":{"message":"tools param requires --jinja flag"}}')
NO_CHAT = answers(404, '{"detail":"Not Found"}')
THINKS = streams(chat_completion([{"reasoning": "the user"}], reason="length"))
THINKS_IN_TEXT = streams(chat_completion([{"content": "<think>the"}], reason="length"))


def named(*names: str, **entry: Any) -> dict[str, Behaviour]:
    """Return the route of a server with these models; `entry` is more of the last."""
    data: list[dict[str, Any]] = [{"id": name} for name in names]
    data[-1] |= entry
    return {"/v1/models": answers(200, json.dumps({"data": data}))}


async def chosen(*behaviours: Behaviour, name: str = "qwen3-4b", **entry: Any) -> str:
    """Return the dialect of a server that is asked without one."""
    async with (
        FakeVllm(*behaviours, routes=named(name, **entry)) as server,
        connected(server, dialect=None, model=name) as model,
    ):
        return str(model.identity.dialect)


@check_rows(
    ("name", "dialect", "starts"),
    [
        ("google/functiongemma-270m-it", "functiongemma", "<bos><start_of_turn>"),
        ("my-FunctionGemma-tuned.gguf", "functiongemma", "<bos><start_of_turn>"),
        ("function_gemma", "functiongemma", "<bos><start_of_turn>"),
        ("google/gemma-4-E2B-it", "gemma4", "<bos><|turn>"),
        ("gemma4:e2b", "gemma4", "<bos><|turn>"),
        ("Gemma 4 31B", "gemma4", "<bos><|turn>"),
        ("gemma-3-4b-it", "json", "<bos><start_of_turn>user\nYou"),
        ("hf.co/unsloth/gemma-3-270m-it-GGUF:Q4_K_M", "json", "<bos><start_of_turn>user\nYou"),
        ("gemma_3n_E2B", "json", "<bos><start_of_turn>user\nYou"),
    ],
)
async def test_connect_takes_dialect_of_family(name: str, dialect: str, starts: str) -> None:
    async with (
        FakeVllm(streams(completion(["네"])), routes=named(name)) as server,
        connected(server, dialect=None) as model,
    ):
        assert model.identity.dialect == dialect
        request = ModelRequest(messages=(UserMessage(text="hi"),), instructions="You are kind.")
        assert [event async for event in model.stream(request)]
        (body,) = server.bodies
    assert body["prompt"].startswith(starts)
    assert body["prompt"].count("<bos>") == 1


def counts(prompt_tokens: int | None) -> Behaviour:
    """Answer a completion with a number of prompt tokens."""
    usage = {} if prompt_tokens is None else {"usage": {"prompt_tokens": prompt_tokens}}
    return answers(200, json.dumps({"choices": [{"text": ""}], **usage}))


NO_PATH = answers(404, "<html>Not Found</html>", "text/html")
OTHER = {"/version": answers(404, "")}


@pytest.mark.parametrize(
    ("completions", "dialect", "warns"),
    [
        (counts(1), "gemma4", False),
        (counts(2), "gemma4", False),
        (counts(None), "gemma4", False),
        (answers(400, "{}"), "gemma4", False),
        (counts(10), "openai", True),  # Ollama puts the template of the model around a prompt
        (NO_PATH, "openai", True),  # LiteRT-LM
        (answers(405, ""), "openai", True),
    ],
)
async def test_connect_takes_openai_if_a_server_does_not_take_prompts(
    completions: Behaviour, dialect: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    routes = {**named("gemma4:e2b"), **OTHER, "/v1/completions": completions}
    async with FakeVllm(CALL, routes=routes) as server:
        async with connected(server, dialect=None) as model:
            assert model.identity.dialect == dialect
        assert "does not take prompts" not in caplog.text
        async with connected(server, dialect="gemma4") as model:
            assert model.identity.dialect == "gemma4"
        assert ("does not take prompts as they are" in caplog.text) == warns


async def test_connect_refuses_a_server_that_takes_no_prompts_and_parses_no_calls() -> None:
    routes = {**named("gemma-3-270m"), **OTHER, "/v1/completions": NO_PATH}
    async with FakeVllm(TEXT, TEXT, routes=routes) as server:
        with pytest.raises(UsageError, match=r"does not take prompts as they are, and .* parse"):
            async with connected(server, dialect=None):
                pass


@check_rows(
    "name",
    [
        "paligemma-3b-mix-224",
        "medgemma-4b-it",
        "embeddinggemma-300m",
        "gemma-2-9b",
        "my-gemma",
        "Qwen3-4B",
        "gemma-4b",
    ],
)
def test_family_of_models_with_similar_names_is_none(name: str) -> None:
    assert family_of(name) is None
    assert default_dialect(name, is_embedded=False) is None


def test_family_of_path_prefers_its_last_part() -> None:
    families = [
        family_of(name) for name in ("gemma-4-tests/gemma-3-4b", "functiongemma/checkpoint-9")
    ]
    assert [family and family.dialect for family in families] == ["json", "functiongemma"]


@check_rows(
    "behaviours",
    [[CALL], [TEXT, CALL], [THINKS], [THINKS_IN_TEXT]],
    ids=["call", "call if required", "thinks", "thinks in text"],
)
async def test_connect_takes_openai_if_server_parses_calls(behaviours: list[Behaviour]) -> None:
    assert await chosen(*behaviours) == "openai"


async def test_connect_probe_asks_for_a_call_and_then_requires_it() -> None:
    async with (
        FakeVllm(TEXT, CALL, routes=models_of("llama-3.2-1b")) as server,
        connected(server, dialect=None),
    ):
        pass
    first, second = server.bodies
    assert [tool["function"]["name"] for tool in first["tools"]] == ["get_time"]
    assert (first["tool_choice"], second["tool_choice"]) == ("auto", "required")


def models_of(*names: str) -> dict[str, Behaviour]:
    return {"/v1/models": models(*names)}


@check_rows(
    ("behaviours", "reason"),
    [
        ([TEXT, TEXT], "answered with text when a call was required"),
        ([TEXT, NO_PARSER], "requires a parser"),
        ([NO_PARSER], "requires a parser"),
        ([NO_JINJA], "--jinja"),
        ([NO_CHAT], "404"),
    ],
)
async def test_connect_refuses_unknown_model_that_only_chats(
    behaviours: list[Behaviour], reason: str
) -> None:
    with pytest.raises(UsageError) as refused:
        await chosen(*behaviours)
    text = str(refused.value)
    assert "qwen3-4b is of no known model family" in text
    assert reason in text
    assert "--dialect: functiongemma, gemma4, json, openai, pythonic." in text


async def test_connect_reports_wrong_key_as_such() -> None:
    with pytest.raises(RequestRefusedError):
        await chosen(answers(401, '{"error":{"message":"bad key"}}'))


async def test_connect_takes_given_dialect_without_a_probe() -> None:
    async with FakeVllm(routes=models_of("qwen3-4b")) as server:
        async with connected(server, dialect="json") as model:
            assert model.identity.dialect == "json"
        assert server.bodies == []


@pytest.mark.longer
@pytest.mark.parametrize(
    ("template", "dialect"),
    [
        ("{{ '<start_function_declaration>' }}", "functiongemma"),
        ("{{ '<|tool>' }}", "gemma4"),
        ("{{ '<start_of_turn>' }}", "json"),
    ],
)
async def test_connect_takes_dialect_of_llama_cpp_template(template: str, dialect: str) -> None:
    props = json.dumps({**json.loads(PROPS), "chat_template": template})
    async with FakeLlamaCpp(**{"/props": answers(200, props)}) as server:
        model = await connect(Endpoint(base_url=server.base_url, model="gemma"))
        await model.aclose()
    expected = "json" if dialect == "json" else dialect
    assert model.identity.dialect == expected


async def test_connect_takes_family_of_weights_before_alias() -> None:
    assert await chosen(name="gemma", root="google/gemma-4-E2B-it") == "gemma4"


async def test_connect_takes_family_of_adapter_base() -> None:
    async with (
        FakeVllm(routes=named("gemma-base", "tuned", parent="gemma-base")) as server,
        connected(server, dialect=None, model="tuned") as model,
    ):
        assert model.identity.dialect == "json"


@pytest.mark.longer
@check_rows(
    ("files", "dialect"),
    [
        ({"config.json": '{"model_type": "gemma3_text"}'}, "json"),
        ({"config.json": '{"model_type": "gemma4_text"}'}, "gemma4"),
        (
            {
                "config.json": '{"model_type": "gemma3_text"}',
                "chat_template.jinja": "<start_function_declaration>",
            },
            "functiongemma",
        ),
        ({"tokenizer_config.json": '{"chat_template": "<|tool>"}'}, "gemma4"),
        (
            {
                "tokenizer_config.json": json.dumps(
                    {
                        "chat_template": [
                            {"name": "default", "template": "x"},
                            {"name": "tool_use", "template": "<|tool>"},
                        ]
                    }
                )
            },
            "gemma4",
        ),
    ],
)
async def test_connect_takes_family_of_local_folder(
    files: dict[str, str], dialect: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert await chosen(name="model", root=str(tmp_path)) == dialect


async def test_connect_logs_once_that_dialect_does_not_fit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "lhkit")
    async with (
        FakeVllm(routes=models_of("functiongemma-270m-it")) as server,
        connected(server, dialect="json") as model,
    ):
        assert model.identity.dialect == "json"
    (record,) = [record for record in caplog.records if hasattr(record, NOTICE)]
    key, values = getattr(record, NOTICE)
    assert key == "dialect.unfit"
    assert (values["family"], values["fitting"]) == ("FunctionGemma", "functiongemma")


@check_rows(
    ("model", "dialect", "fits"),
    [
        ("gemma-3-4b-it", "json", True),
        ("gemma-3-4b-it", "pythonic", True),
        ("gemma-3-4b-it", "gemma4", False),
        ("gemma-4-E2B-it", "gemma4", True),
        ("gemma-4-E2B-it", "json", False),
        ("gemma-4-E2B-it", "openai", True),
        ("functiongemma-270m", "pythonic", False),
        ("qwen3", "json", True),
        ("functiongemma-270m", "", True),
    ],
)
def test_unfit_values_names_family(model: str, dialect: str, *, fits: bool) -> None:
    assert (not unfit_values(ModelIdentity(model=model, dialect=dialect))) == fits


@check_rows(
    ("text", "formats"),
    [
        ("<start_function_call>call:a{}<end_function_call>", ("functiongemma",)),
        ("네 <|tool_call>call:a{}<tool_call|>", ("gemma4",)),
        ("```tool_code\na()\n```", ("pythonic",)),
        (' {"name": "a"}', ("json",)),
        ("<tool_call>{}</tool_call>", ("<tool_call>",)),
        ('할 일: {"name": …}은 아니고', ()),
        ("done", ()),
    ],
)
def test_call_formats_of_replies(text: str, formats: tuple[str, ...]) -> None:
    assert call_formats(text) == formats


@pytest.mark.parametrize("differs", [False, True])
async def test_connect_logs_that_server_renders_otherwise(
    *, differs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """vLLM shows what its template renders, but not the template."""
    caplog.set_level(logging.WARNING, "lhkit")
    request = ModelRequest(
        messages=PROBE_MESSAGES[:1], tools=PROBE_TOOLS, instructions="Answer briefly."
    )
    prompt = DIALECTS["gemma4"].encode(request.messages, request.tools, request.instructions)
    shown = prompt.replace("STRING", "string") if differs else prompt
    routes = {
        **models_of("gemma-4-E2B-it"),
        "/tokenize": answers(200, json.dumps({"tokens": [2, 3]})),
        "/detokenize": answers(200, json.dumps({"prompt": shown})),
    }
    async with FakeVllm(routes=routes) as server, connected(server, dialect=None):
        pass
    notices = [getattr(record, NOTICE) for record in caplog.records if hasattr(record, NOTICE)]
    expected = {"address": server.base_url, "count": 1}
    assert notices == [("dialect.rendering_differs", expected)] * differs
