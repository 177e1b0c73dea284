"""Convert recorded turns to the messages of the model, for exports."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lhkit.base.json_values import compact
from lhkit.base.text import whole_unicode
from lhkit.conversation.tool_results import (
    TRUNCATION_HINT,
    ToolOk,
    encode_tool_result,
    parse_result,
    plain_result,
    result_to_dict,
)
from lhkit.harness.records.manifest import AssistantLimits, Prompt
from lhkit.harness.records.record import CallRecord, ModelCallRecord, SampleRecord, TurnRecord
from lhkit.harness.results.results import Run

Json: TypeAlias = dict[str, Any]


def json_bytes(value: Any) -> bytes:
    """Return compact JSON in UTF-8, Korean readable; a lone surrogate becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return whole_unicode(text).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """A message of the model with its calls; `request` is None for calls without a request."""

    request: ModelCallRecord | None
    calls: Sequence[CallRecord]

    @property
    def text(self) -> str:
        """The text of the message, and the raw text of truncated calls."""
        text = self.request.response.text if self.request else ""
        return "\n".join(filter(None, (text, *(c.raw_text for c in self.calls if not c.tool))))

    @property
    def named(self) -> list[CallRecord]:
        """The calls, without those that were truncated before their name."""
        return [call for call in self.calls if call.tool]


def assistant_messages(turn: TurnRecord) -> Iterator[AssistantMessage]:
    """Yield the messages of the model in a turn; calls without a request come first."""
    for number, request in ((None, None), *enumerate(turn.model_calls)):
        calls = [call for call in turn.calls if call.model_call == number]
        message = AssistantMessage(request=request, calls=calls)
        if message.text.strip() or message.named:
            yield message


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfig:
    """The tools of one sample, and the limits of the assistant in its language."""

    tools: Sequence[Mapping[str, Any]]
    limits: AssistantLimits

    @classmethod
    def of(cls, record: SampleRecord, run: Run) -> "ToolConfig":
        """Return the tools of the scenario and those added in its turns."""
        prompt = run.manifest.locales.get(record.locale, Prompt())
        tools = run.manifest.tools_of(record.sample_id.scenario, record.locale)
        added = [tool for turn in record.trajectory.turns for tool in turn.new_tools]
        return cls(tools=(*tools, *added), limits=prompt.assistant)

    def result_text(self, call: CallRecord) -> str:
        """Return the tool result of a call as it was sent to the model.

        A toolset without a `result_format` has the envelope here, whatever the dialect of the run.
        """
        result = parse_result(call.result)
        if result is None:
            return compact(call.result)
        if isinstance(result, ToolOk):
            hint = self.limits.truncation_hint or TRUNCATION_HINT
            text = encode_tool_result(result, self.limits.max_result_bytes, hint=hint)
        else:
            text = compact(result_to_dict(result))
        return plain_result(text) if self.limits.result_format == "plain" else text


def call_id(number: int) -> str:
    """Return the id of a call: nine letters and digits, as strict servers require."""
    return f"call{number:05d}"
