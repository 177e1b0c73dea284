"""A log of Inspect: a zip of JSON files, one for each sample, as `inspect view` shows it.

A repeat is an epoch, a verdict the score C or I, an invalid sample one with an error; a
confirmation is an approval. Times are those of the record, counted from the sample's start.
"""

import zipfile
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lhkit.files import replace_atomically
from lhkit.harness.export.conversation import (
    Json,
    Message,
    ToolConfig,
    call_id,
    config_of,
    configs_of,
    json_bytes,
    messages_of,
)
from lhkit.harness.record import CallRecord, ModelCallRecord, SampleRecord, TurnRecord, Verdict
from lhkit.harness.record_json import moment_of
from lhkit.harness.results import Run
from lhkit.harness.resume import asked_of
from lhkit.json_values import compact
from lhkit.messages import GateOutcome
from lhkit.responses import Usage
from lhkit.text import whole_unicode

_LOG_VERSION = 2
_SCORER = "lhkit"
_UNKNOWN_START = "1970-01-01T00:00:00+00:00"
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the same run gives the same bytes
_SUMMARY_CHARS = 1_024
_STOPS = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls"}
_ERRORS = {"validation": "parsing", "handler_timeout": "timeout"}
_SCHEMA_KEYS = ("type", "description", "enum")


def write_inspect(run: Run, file: Path) -> None:
    """Write a log that `inspect view` opens and `inspect_ai.log.read_eval_log` reads.

    Raises:
        OSError: the disk does not take it.
    """
    told = configs_of(run)
    counts: Counter[Verdict] = Counter()
    usage: dict[str, Json] = {}
    summaries: list[bytes] = []  # as text: of a large run these are all that is held
    with (
        replace_atomically(file) as (draft,),
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as log,
    ):
        header = _header(run)
        start = {"version": _LOG_VERSION, "eval": header["eval"], "plan": header["plan"]}
        _put(log, "_journal/start.json", json_bytes(start))
        for record in run.records:
            sample = _InspectSample(record, config_of(record, run, told), run).json()
            _put(log, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json_bytes(sample))
            summaries.append(json_bytes(_summary(sample)))
            counts[record.judgement.verdict] += 1
            for model, used in sample["model_usage"].items():
                usage[model] = _sum(usage.get(model, {}), used)
        _put(log, "summaries.json", b"[" + b",".join(summaries) + b"]")
        header["results"] = _results(counts)
        header["stats"]["model_usage"] = usage
        _put(log, "header.json", json_bytes(header))


def _put(log: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(whole_unicode(name), _ZIP_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    log.writestr(entry, content)


def _header(run: Run) -> Json:
    """Return the head of the log, before anything is counted."""
    manifest = run.manifest
    invocations = manifest.get("invocations") or [{}]
    begun = invocations[0].get("started_at") or _UNKNOWN_START
    names = list(dict.fromkeys(sample.scenario for sample in asked_of(manifest)))
    models = [each.get("model") for each in manifest.get("models", ())]
    sampling = [*manifest.get("sampling", ()), {}][0]
    commit = manifest.get("git_commit")
    return {
        "version": _LOG_VERSION,
        "status": "success" if invocations[-1].get("finished", True) else "cancelled",
        "eval": {
            "eval_id": run.name,
            "run_id": run.name,
            "task_id": run.name,
            "created": begun,
            "task": run.name or run.toolset,
            "dataset": {"name": run.toolset, "samples": len(names), "sample_ids": names},
            "model": " + ".join(dict.fromkeys(filter(None, models))) or "none",
            "model_generate_config": {k: v for k, v in sampling.items() if v is not None},
            "config": {"epochs": manifest.get("repeats", 1)},
            "packages": {"lhkit": manifest.get("versions", {}).get("lhkit", "")},
            **({"revision": {"type": "git", "origin": "", "commit": commit}} if commit else {}),
            "metadata": {
                key: manifest[key] for key in ("toolset", "user", "models") if key in manifest
            },
        },
        "plan": {"name": "lhkit", "steps": []},
        "stats": {"started_at": begun, "completed_at": invocations[-1].get("ended_at") or ""},
    }


def _results(counts: Mapping[Verdict, int]) -> Json:
    """Return the pass rate over the samples that could be judged."""
    valid = counts[Verdict.PASS] + counts[Verdict.FAIL]
    rate = {"name": "accuracy", "value": counts[Verdict.PASS] / valid} if valid else None
    return {
        "total_samples": sum(counts.values()),
        "completed_samples": valid,
        "scores": [
            {
                "name": _SCORER,
                "scorer": _SCORER,
                "scored_samples": valid,
                "unscored_samples": counts[Verdict.INVALID],
                "metrics": {"accuracy": rate} if rate else {},
            }
        ],
    }


def _summary(sample: Json) -> Json:
    """Return what a list of samples shows of one."""
    kept = ("id", "epoch", "scores", "model_usage", "total_time", "working_time", "uuid")
    times = ("started_at", "completed_at")
    return {
        **{key: sample[key] for key in (*kept, *times) if key in sample},
        "input": sample["input"][:_SUMMARY_CHARS],
        "target": sample["target"],
        "completed": True,
        "message_count": len(sample["messages"]),
        **({"error": sample["error"]["message"]} if "error" in sample else {}),
    }


def _usage(usage: Usage) -> Json:
    """Return tokens as Inspect counts them: those that were cached are no input."""
    cached = usage.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - (cached or 0),
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **({} if cached is None else {"input_tokens_cache_read": cached}),
    }


def _sum(one: Json, other: Json) -> Json:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def begin_of(record: SampleRecord, run: Run) -> datetime:
    """Return when a sample began, or its run; 1970 where neither says it in ISO 8601."""
    invocations = run.manifest.get("invocations") or [{}]
    told = (record.started_at, invocations[0].get("started_at"), _UNKNOWN_START)
    return next(moment for each in told if (moment := moment_of(each)))


class _InspectSample:
    """One record on its way to Inspect: its messages, and its events in order of time."""

    def __init__(self, record: SampleRecord, told: ToolConfig, run: Run) -> None:
        self._record, self._told = record, told
        self._begun = begin_of(record, run).astimezone()
        self._key = f"{record.content_hash[:16]}-{record.sample_id.repeat}"
        self._messages: list[Json] = []
        self._events: list[Json] = []
        self._usage: dict[str, Json] = {}
        self._output: Json = {}
        self._calls = 0

    def json(self) -> Json:
        """Return the sample."""
        record, judgement = self._record, self._record.judgement
        at_s = 0.0
        for turn in record.evidence.turns:
            self._turn(turn, at_s)
            at_s += turn.duration_s
        fault = record.evidence.fault
        ended = "\n".join(judgement.reasons) or fault or ""
        is_invalid = judgement.verdict is Verdict.INVALID
        expected = (
            row.tool
            for score in judgement.scores
            for row in score.calls
            if row.expected is not None
        )
        waited_s = sum(turn.waiting_s for turn in record.evidence.turns)
        return {
            "id": record.sample_id.scenario,
            "epoch": record.sample_id.repeat + 1,
            "uuid": self._key,
            "input": record.evidence.turns[0].user if record.evidence.turns else "",
            "target": list(expected),
            "messages": self._messages,
            "output": self._output,
            **({} if is_invalid else {"scores": {_SCORER: self._score()}}),
            "metadata": {
                "ac": record.ac,
                "locale": record.locale,
                "tags": list(record.tags),
                "content_hash": record.content_hash,
            },
            "events": self._events if is_invalid else [*self._events, self._scored(at_s)],
            "model_usage": self._usage,
            "started_at": self._at(0),
            "completed_at": self._at(record.wall_s),
            "total_time": record.wall_s,
            "working_time": max(0.0, record.wall_s - waited_s),
            **({"error": _error(ended)} if is_invalid else {}),
        }

    def _at(self, offset_s: float) -> str:
        return (self._begun + timedelta(seconds=offset_s)).isoformat()

    def _score(self) -> Json:
        judgement = self._record.judgement
        return {
            "value": "C" if judgement.verdict is Verdict.PASS else "I",
            "answer": self._record.evidence.turns[-1].reply if self._record.evidence.turns else "",
            "explanation": "\n".join(judgement.reasons),
            "metadata": {
                "strict_verdict": judgement.strict_verdict,
                "state_equal": judgement.state_equal,
                "violations": [
                    {"code": each.code, "severity": each.severity, "detail": each.detail}
                    for each in judgement.violations
                ],
            },
        }

    def _scored(self, at_s: float) -> Json:
        return self._event("score", at_s, score=self._score(), scorer=_SCORER)

    def _event(self, kind: str, at_s: float, **more: Any) -> Json:
        return {
            "event": kind,
            "uuid": f"{self._key}-e{len(self._events)}",
            "timestamp": self._at(at_s),
            "working_start": at_s,
            **more,
        }

    def _said(self, role: str, text: str, **more: Any) -> None:
        name = f"{self._key}-m{len(self._messages)}"
        self._messages.append({"id": name, "role": role, "content": text, **more})

    def _turn(self, turn: TurnRecord, at_s: float) -> None:
        """Add a turn that began `at_s` seconds after its sample; its calls follow their request."""
        self._said("user", turn.user, source="input")
        spoken = {id(said.request): said for said in messages_of(turn)}
        sent: list[ModelCallRecord | None] = [None, *turn.model_calls]
        for request in sent:
            said = spoken.get(id(request), Message(request=request, calls=()))
            if request is None and not said.calls:
                continue
            begun_s = at_s + (request.offset_s + request.duration_s if request else 0.0)
            self._request(said, at_s)
            for number, call in enumerate(said.named, start=self._calls):
                begun_s = self._call(call, call_id(number), begun_s)
            self._calls += len(said.named)

    def _request(self, said: Message, at_s: float) -> None:
        """Add a message of the model, with the request that it answered if one is told."""
        asked = list(self._messages)
        calls = [_call(each, call_id(n)) for n, each in enumerate(said.named, start=self._calls)]
        if said.text.strip() or calls:
            more = {"tool_calls": calls} if calls else {}
            self._said("assistant", said.text, source="generate", **more)
        if said.request is None:
            return
        response, sent = said.request.response, said.request
        model = response.identity.model if response.identity else "none"
        message = self._messages[-1] if len(self._messages) > len(asked) else _silence()
        reason = "max_tokens" if response.truncated else _STOPS.get(response.reason, "unknown")
        self._output = {
            "model": model,
            "choices": [{"message": message, "stop_reason": reason}],
            "usage": _usage(response.usage),
            "time": sent.duration_s,
        }
        self._usage[model] = _sum(self._usage.get(model, {}), self._output["usage"])
        self._events.append(
            self._event(
                "model",
                at_s + sent.offset_s,
                model=model,
                input=asked,
                tools=[_tool(tool) for tool in self._told.tools],
                tool_choice="auto",
                config={},
                output=self._output,
                completed=self._at(at_s + sent.offset_s + sent.duration_s),
                working_time=sent.duration_s,
                metadata={"raw_text": response.raw_text},
            )
        )

    def _call(self, call: CallRecord, name: str, at_s: float) -> float:
        """Add a call with its result and what a person said to it; return when it was over."""
        begun_s = at_s + call.validation_s + call.waiting_s
        ended_s = begun_s + call.handler_s
        if call.gate.was_asked:
            self._events.append(
                self._event(
                    "approval",
                    at_s + call.validation_s,
                    message=call.summary,
                    call=_call(call, name),
                    approver="user",
                    decision="approve" if call.gate is GateOutcome.ACCEPTED else "reject",
                    explanation=call.gate,
                )
            )
        error = _tool_error(call)
        told = {"error": error} if error else {}
        text = self._told.read(call)
        self._said("tool", text, tool_call_id=name, function=call.tool, **told)
        self._events.append(
            self._event(
                "tool",
                begun_s,
                id=name,
                function=call.tool,
                arguments=_call(call, name)["arguments"],
                result=text,
                completed=self._at(ended_s),
                working_time=call.handler_s,
                message_id=self._messages[-1]["id"],
                metadata={"ran": call.ran, "gate": call.gate, "outcome": call.outcome},
                **told,
            )
        )
        return ended_s


def _silence() -> Json:
    return {"role": "assistant", "content": "", "source": "generate"}


def _error(message: str) -> Json:
    return {"message": message, "traceback": "", "traceback_ansi": ""}


def _call(call: CallRecord, name: str) -> Json:
    """Return a call; one whose arguments are no object keeps them as an error of its parsing."""
    is_object = isinstance(call.raw_args, Mapping)
    return {
        "id": name,
        "function": call.tool,
        "arguments": dict(call.raw_args) if is_object else {},
        **({} if is_object else {"parse_error": compact(call.raw_args)}),
    }


def _tool_error(call: CallRecord) -> Json | None:
    """Return why a call came to nothing; None for one that did its work."""
    if call.outcome == "ok":
        return None
    kind = "approval" if call.outcome == "cancelled" else _ERRORS.get(call.outcome, "unknown")
    return {"type": kind, "message": f"{call.outcome}: {call.result.get('reason', '')}"}


def _tool(tool: Mapping[str, Any]) -> Json:
    """Return a tool with what Inspect knows of schemas: of each argument its kind and its words."""
    schema = tool["parameters"]
    return {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": {
            "type": "object",
            "properties": {
                name: {key: each[key] for key in _SCHEMA_KEYS if key in each}
                for name, each in schema.get("properties", {}).items()
                if isinstance(each, Mapping)
            },
            "required": list(schema.get("required", ())),
        },
    }
