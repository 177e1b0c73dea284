"""A recorded conversation as the model had it, message by message, and JSON for its export."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from lhkit.harness.record import CallRecord, ModelCallRecord, SampleRecord, TurnRecord
from lhkit.harness.results import Run
from lhkit.json_values import compact
from lhkit.text import whole_unicode
from lhkit.tool_results import ToolOk, encode_tool_result, parse_result, result_to_dict

Json: TypeAlias = dict[str, Any]


def json_bytes(value: Any) -> bytes:
    """Return compact JSON in UTF-8, Korean readable; a lone surrogate becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return whole_unicode(text).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the model, and the calls that it made; `request` is None if none is told."""

    request: ModelCallRecord | None
    calls: Sequence[CallRecord]

    @property
    def text(self) -> str:
        """Its words, and in place of a call that was cut off what was written of it."""
        said = self.request.response.text if self.request else ""
        return "\n".join(filter(None, (said, *(c.raw_text for c in self.calls if not c.tool))))

    @property
    def named(self) -> list[CallRecord]:
        """Its calls, without one that was cut off before its name."""
        return [call for call in self.calls if call.tool]


def messages_of(turn: TurnRecord) -> Iterator[Message]:
    """Yield what the model said in a turn; calls that no request is named for come first."""
    for number, request in ((None, None), *enumerate(turn.model_calls)):
        said = Message(
            request=request, calls=[call for call in turn.calls if call.model_call == number]
        )
        if said.text.strip() or said.named:
            yield said


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfig:
    """What a manifest says of the conversations in one language."""

    tools: Sequence[Mapping[str, Any]] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)

    def read(self, call: CallRecord) -> str:
        """Return the result of a call as the model read it."""
        result = parse_result(call.result)
        if result is None:
            return compact(call.result)
        if not isinstance(result, ToolOk) or "max_result_bytes" not in self.limits:
            return compact(result_to_dict(result))
        limits = self.limits
        hint = {"hint": limits["truncation_hint"]} if "truncation_hint" in limits else {}
        return encode_tool_result(result, int(limits["max_result_bytes"]), **hint)


def config_of(record: SampleRecord, run: Run, told: Mapping[str, ToolConfig]) -> ToolConfig:
    """Return what is known of one conversation's tools: those of its scenario, and what came."""
    known = told.get(record.locale, ToolConfig())
    names = run.manifest.get("tools", {}).get(record.sample_id.scenario)
    tools = [tool for tool in known.tools if names is None or tool["name"] in names]
    came = [tool for turn in record.evidence.turns for tool in turn.new_tools]
    return replace(known, tools=(*tools, *came))


def configs_of(run: Run) -> dict[str, ToolConfig]:
    """Return what the manifest says, by language."""
    return {
        locale: ToolConfig(tools=told.get("tools", ()), limits=told.get("assistant", {}))
        for locale, told in run.manifest.get("locales", {}).items()
    }


def call_id(number: int) -> str:
    """Return the id of a conversation's call: nine letters and digits, as strict servers want."""
    return f"call{number:05d}"
