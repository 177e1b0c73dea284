"""LiteRT-LM's own server with a stand-in engine, which needs no weights.

`test_litert_lm.py` runs it with a Python that has `litert-lm`: `litert_lm_server.py PLAN LOG`. PLAN
maps a user's message to what the engine answers, one message after another: a text, a list of
`[name, arguments]`, an object for an error, or null for what never ends by itself. LOG gets a line
for each message that the engine is asked for. The port is printed.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import litert_lm  # type: ignore[import-not-found, unused-ignore]
from litert_lm_cli.commands.serve import (  # type: ignore[import-not-found, unused-ignore]
    openai_handler,
    util,
)

CONTEXT = 4096
PLAN = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
LOG = Path(sys.argv[2])


class Conversation:
    """Answers one message as planned, token by token."""

    def __init__(self, messages: Sequence[Any], tools: Sequence[Any]) -> None:
        self.messages = messages
        self.tools = tools
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def cancel_process(self) -> None:
        pass

    def get_benchmark_info(self) -> Any:
        return litert_lm.BenchmarkInfo(
            **{
                field: self.count if field == "last_decode_token_count" else 0
                for field in litert_lm.BenchmarkInfo.__dataclass_fields__
            }
        )

    def send_message_async(
        self, message: Mapping[str, Any], *, max_output_tokens: int | None = None, **_: Any
    ) -> Iterator[Any]:
        history = [*self.messages, message]
        [asked] = [n for n, each in enumerate(history) if each["role"] == "user"][-1:]
        answered = sum(each["role"] == "assistant" for each in history[asked:])
        line = {"limit": max_output_tokens, "tools": self.tools, "messages": history}
        with LOG.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        question = history[asked]["content"].splitlines()[-1]  # after the context lines
        answer = PLAN[question][answered]
        if isinstance(answer, dict):
            raise RuntimeError(answer["error"])
        if isinstance(answer, list):
            calls = [litert_lm.ToolCall(name=name, arguments=args) for name, args in answer]
            self.count = 12
            yield litert_lm.Message(litert_lm.Role.MODEL, tool_calls=calls)
            return
        words = ["again "] * CONTEXT if answer is None else answer.split(" ")
        for word in words[:max_output_tokens]:
            self.count += 1
            text = word if answer is None or self.count == 1 else f" {word}"
            yield litert_lm.Message(litert_lm.Role.MODEL, litert_lm.Contents.of(text))


class Engine:
    """Takes the place of `litert_lm.Engine`."""

    def __init__(self, path: str, **_: Any) -> None:
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create_conversation(
        self, *, messages: Sequence[Any], tools: Sequence[Any] | None, **_: Any
    ) -> Conversation:
        return Conversation(messages, [tool.get_tool_description() for tool in tools or []])


litert_lm.Engine = Engine
with util.LiteRTLMServer(("127.0.0.1", 0), openai_handler.OpenAIHandler) as server:
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
