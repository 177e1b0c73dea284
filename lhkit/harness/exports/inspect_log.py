"""Export a run as an Inspect log: a zip of JSON files, one for each sample.

A repeat is an epoch, a verdict is the score C or I beside the user's scores, an invalid sample has
an error, a confirmation is an approval. Times are those of the record, from the start of the
sample.
"""

import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from lhkit.base.files import replace_atomically
from lhkit.base.json_values import compact
from lhkit.base.text import whole_unicode
from lhkit.chat.truth import truth_kind
from lhkit.conversation.messages import GateOutcome
from lhkit.conversation.responses import Usage
from lhkit.harness.exports.conversation import (
    AssistantMessage,
    Json,
    ToolConfig,
    assistant_messages,
    call_id,
    json_bytes,
)
from lhkit.harness.figures.metrics import ScoreFigure
from lhkit.harness.records.manifest import Invocation
from lhkit.harness.records.record import (
    CallRecord,
    ModelCallRecord,
    SampleRecord,
    TurnRecord,
    Verdict,
    parse_moment,
)
from lhkit.harness.records.score_record import ScoreRecord
from lhkit.harness.records.transcript import catalog_of, turn_truth
from lhkit.harness.results.results import Run

_LOG_VERSION = 2
_SCORER = "lhkit"
_UNKNOWN_START = "1970-01-01T00:00:00+00:00"
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that equal runs give equal bytes
_SUMMARY_CHARS = 1_024
_STOPS = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls"}
_ERRORS = {"validation": "parsing", "handler_timeout": "timeout"}
_SCHEMA_KEYS = ("type", "description", "enum")


def write_inspect(run: Run, file: Path) -> None:
    """Write a log for `inspect view` and `inspect_ai.log.read_eval_log`.

    Args:
        run: the run to export.
        file: the log, which is complete or unchanged; its name should end in `.eval`.

    Raises:
        OSError: the file cannot be written.
    """
    counts: Counter[Verdict] = Counter()
    results = run.results_by_sample()
    usage: dict[str, Json] = {}
    summaries: list[bytes] = []  # encoded, to keep the memory for large runs small
    with (
        replace_atomically(file) as (draft,),
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as log,
    ):
        header = _header(run)
        start = {"version": _LOG_VERSION, "eval": header["eval"], "plan": header["plan"]}
        _put(log, "_journal/start.json", json_bytes(start))
        for record in run.records:
            sample = _InspectSample(record, run, results.get(record.sample_id, ())).json()
            _put(log, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json_bytes(sample))
            summaries.append(json_bytes(_summary(sample)))
            counts[record.score.verdict] += 1
            for model, used in sample["model_usage"].items():
                usage[model] = _sum(usage.get(model, {}), used)
        _put(log, "summaries.json", b"[" + b",".join(summaries) + b"]")
        header["results"] = _results(counts, run.score_figures())
        header["stats"]["model_usage"] = usage
        _put(log, "header.json", json_bytes(header))


def _put(log: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(whole_unicode(name), _ZIP_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    log.writestr(entry, content)


def _header(run: Run) -> Json:
    """Return the header of the log, without results."""
    manifest = run.manifest
    invocations = manifest.invocations or [Invocation(finished=True)]
    started = invocations[0].started_at or _UNKNOWN_START
    models = [str(model["model"]) for model in manifest.models if model.get("model")]
    sampling = [*manifest.sampling, {}][0]
    commit = manifest.git_commit
    names = list(manifest.content_hashes)
    return {
        "version": _LOG_VERSION,
        "status": "success" if invocations[-1].finished else "cancelled",
        "eval": {
            "eval_id": run.name,
            "run_id": run.name,
            "task_id": run.name,
            "created": started,
            "task": run.name or run.toolset,
            "dataset": {"name": run.toolset, "samples": len(names), "sample_ids": names},
            "model": " + ".join(dict.fromkeys(models)) or "none",
            "model_generate_config": {k: v for k, v in sampling.items() if v is not None},
            "config": {"epochs": manifest.repeats},
            "packages": {"lhkit": manifest.versions.get("lhkit", "")},
            **({"revision": {"type": "git", "origin": "", "commit": commit}} if commit else {}),
            "metadata": {
                key: value
                for key, value in manifest.plain().items()
                if key in {"toolset", "user", "models"}
            },
        },
        "plan": {"name": "lhkit", "steps": []},
        "stats": {"started_at": started, "completed_at": invocations[-1].ended_at or ""},
    }


def _results(counts: Mapping[Verdict, int], figures: Iterable[ScoreFigure]) -> Json:
    """Return the pass rate of valid samples, and the means of the user's scores."""
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
            },
            *(
                {
                    "name": figure.name,
                    "scorer": figure.name,
                    "scored_samples": figure.n,
                    "unscored_samples": sum(counts.values()) - figure.n,
                    "metrics": {}
                    if figure.value is None
                    else {"mean": {"name": "mean", "value": figure.value}},
                }
                for figure in figures
            ),
        ],
    }


def _summary(sample: Json) -> Json:
    """Return the summary of a sample for the list of samples."""
    keys = ("id", "epoch", "scores", "model_usage", "total_time", "working_time", "uuid")
    times = ("started_at", "completed_at")
    return {
        **{key: sample[key] for key in (*keys, *times) if key in sample},
        "input": sample["input"][:_SUMMARY_CHARS],
        "target": sample["target"],
        "completed": True,
        "message_count": len(sample["messages"]),
        **({"error": sample["error"]["message"]} if "error" in sample else {}),
    }


def _usage(usage: Usage) -> Json:
    """Return token counts in Inspect's form, which excludes cached tokens from the input."""
    cached = usage.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - (cached or 0),
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **({} if cached is None else {"input_tokens_cache_read": cached}),
    }


def _sum(one: Json, other: Json) -> Json:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def start_of(record: SampleRecord, run: Run) -> datetime:
    """Return the start of a sample, else of its run, else 1970."""
    invocations = run.manifest.invocations or [Invocation()]
    starts = (record.started_at, invocations[0].started_at, _UNKNOWN_START)
    return next(moment for start in starts if (moment := parse_moment(start)))


class _InspectSample:
    """The conversion of one record: its messages, and its events in order of time."""

    def __init__(self, record: SampleRecord, run: Run, results: Iterable[ScoreRecord]) -> None:
        self._values = [
            value for result in results for value in result.values if value.value is not None
        ]
        self._record, self._config = record, ToolConfig.of(record, run)
        self._started = start_of(record, run).astimezone()
        self._key = f"{record.content_hash[:16]}-{record.sample_id.repeat}"
        self._messages: list[Json] = []
        self._events: list[Json] = []
        self._usage: dict[str, Json] = {}
        self._output: Json = {}
        self._calls = 0

    def json(self) -> Json:
        """Return the sample in Inspect's form."""
        record, score = self._record, self._record.score
        at_s = 0.0
        for turn in record.trajectory.turns:
            self._turn(turn, at_s)
            at_s += turn.duration_s
        error_text = record.trajectory.error
        error = "\n".join(score.reasons) or error_text or ""
        is_invalid = score.verdict is Verdict.INVALID
        if not is_invalid:
            for name, its_score in self._scores().items():
                self._events.append(self._event("score", at_s, score=its_score, scorer=name))
        expected = (
            row.tool
            for turn_score in score.turn_scores
            for row in turn_score.calls
            if row.expected is not None
        )
        waited_s = sum(turn.waiting_s for turn in record.trajectory.turns)
        return {
            "id": record.sample_id.name,
            "epoch": record.sample_id.repeat + 1,
            "uuid": self._key,
            "input": record.trajectory.turns[0].user if record.trajectory.turns else "",
            "target": list(expected),
            "messages": self._messages,
            "output": self._output,
            **({} if is_invalid else {"scores": self._scores()}),
            "metadata": {
                **({"ac": record.ac} if record.ac else {}),
                "locale": record.locale,
                "tags": list(record.tags),
                "content_hash": record.content_hash,
            },
            "events": self._events,
            "model_usage": self._usage,
            "started_at": self._at(0),
            "completed_at": self._at(record.wall_s),
            "total_time": record.wall_s,
            "working_time": max(0.0, record.wall_s - waited_s),
            **(
                {"error": {"message": error, "traceback": "", "traceback_ansi": ""}}
                if is_invalid
                else {}
            ),
        }

    def _at(self, offset_s: float) -> str:
        return (self._started + timedelta(seconds=offset_s)).isoformat()

    def _scores(self) -> Json:
        """Return the verdict, and the values of the user's scores."""
        own = {
            each.name: {"value": each.value, "explanation": each.reason} for each in self._values
        }
        return {_SCORER: self._score(), **own}

    def _score(self) -> Json:
        score = self._record.score
        return {
            "value": "C" if score.verdict is Verdict.PASS else "I",
            "answer": self._record.trajectory.turns[-1].reply
            if self._record.trajectory.turns
            else "",
            "explanation": "\n".join(score.reasons),
            "metadata": {
                "strict_verdict": score.strict_verdict,
                "state_equal": score.state_equal,
                "violations": [
                    {"code": v.code, "severity": v.severity, "detail": v.detail}
                    for v in score.violations
                ],
            },
        }

    def _event(self, kind: str, at_s: float, **fields: Any) -> Json:
        return {
            "event": kind,
            "uuid": f"{self._key}-e{len(self._events)}",
            "timestamp": self._at(at_s),
            "working_start": at_s,
            **fields,
        }

    def _add_message(self, role: str, text: str, **fields: Any) -> None:
        name = f"{self._key}-m{len(self._messages)}"
        self._messages.append({"id": name, "role": role, "content": text, **fields})

    def _turn(self, turn: TurnRecord, at_s: float) -> None:
        """Add a turn that began `at_s` seconds after its sample; its calls follow their request."""
        self._add_message("user", turn.user, source="input")
        messages = {id(message.request): message for message in assistant_messages(turn)}
        requests: list[ModelCallRecord | None] = [None, *turn.model_calls]
        for request in requests:
            message = messages.get(id(request), AssistantMessage(request=request, calls=()))
            if request is None and not message.calls:
                continue
            start_s = at_s + (request.offset_s + request.duration_s if request else 0.0)
            self._request(message, at_s)
            for number, call in enumerate(message.named, start=self._calls):
                start_s = self._call(call, call_id(number), start_s)
            self._calls += len(message.named)
        truth = turn_truth(turn, catalog_of(self._record))
        ended_s = at_s + turn.duration_s
        self._events.append(self._event("info", ended_s, source="lhkit.truth", data=truth))

    def _request(self, sent: AssistantMessage, at_s: float) -> None:
        """Add a message of the model, and the request that it answered if there is one."""
        prompt = list(self._messages)
        calls = [
            _tool_call(call, call_id(n)) for n, call in enumerate(sent.named, start=self._calls)
        ]
        if sent.text.strip() or calls:
            fields = {"tool_calls": calls} if calls else {}
            self._add_message("assistant", sent.text, source="generate", **fields)
        request = sent.request
        if request is None:
            return
        response = request.response
        model = response.identity.model if response.identity else "none"
        message: Json = {"role": "assistant", "content": "", "source": "generate"}
        if len(self._messages) > len(prompt):
            message = self._messages[-1]
        reason = "max_tokens" if response.truncated else _STOPS.get(response.reason, "unknown")
        self._output = {
            "model": model,
            "choices": [{"message": message, "stop_reason": reason}],
            "usage": _usage(response.usage),
            "time": request.duration_s,
        }
        self._usage[model] = _sum(self._usage.get(model, {}), self._output["usage"])
        self._events.append(
            self._event(
                "model",
                at_s + request.offset_s,
                model=model,
                input=prompt,
                tools=[_tool(tool) for tool in self._config.tools],
                tool_choice="auto",
                config={},
                output=self._output,
                completed=self._at(at_s + request.offset_s + request.duration_s),
                working_time=request.duration_s,
                metadata={"raw_text": response.raw_text},
            )
        )

    def _call(self, call: CallRecord, name: str, at_s: float) -> float:
        """Add a call with its approval and result; return the time of its end."""
        start_s = at_s + call.validation_s + call.waiting_s
        end_s = start_s + call.handler_s
        is_policy = call.gate is GateOutcome.POLICY
        if call.gate.was_asked or is_policy:
            made = _tool_call(call, name)
            modified = (
                {"modified": made | {"arguments": dict(call.effective_args)}}
                if call.is_edited
                else {}
            )
            self._events.append(
                self._event(
                    "approval",
                    at_s + call.validation_s,
                    message=call.summary,
                    call=made,
                    approver="policy" if is_policy else "user",
                    decision=_decision(call),
                    explanation=call.reason or call.gate,
                    **modified,
                )
            )
        error = _tool_error(call)
        fields = {"error": error} if error else {}
        text = self._config.result_text(call)
        self._add_message("tool", text, tool_call_id=name, function=call.tool, **fields)
        self._events.append(
            self._event(
                "tool",
                start_s,
                id=name,
                function=call.tool,
                arguments=_arguments(call.effective_args),
                result=text,
                completed=self._at(end_s),
                working_time=call.handler_s,
                message_id=self._messages[-1]["id"],
                metadata={
                    "ran": call.ran,
                    "gate": call.gate,
                    "outcome": call.outcome,
                    "truth": truth_kind(call.to_message()),
                    **_logprobs(call),
                },
                **fields,
            )
        )
        return end_s


def _logprobs(call: CallRecord) -> Json:
    values = {"min_logprob": call.min_logprob, "mean_logprob": call.mean_logprob}
    return {name: value for name, value in values.items() if value is not None}


def _decision(call: CallRecord) -> str:
    if call.gate not in (GateOutcome.ACCEPTED, GateOutcome.POLICY):
        return "reject"
    return "modify" if call.is_edited else "approve"


def _tool_call(call: CallRecord, name: str) -> Json:
    """Return a call; arguments that are not an object become its parse error."""
    is_object = isinstance(call.raw_args, Mapping)
    return {
        "id": name,
        "function": call.tool,
        "arguments": _arguments(call.raw_args),
        **({} if is_object else {"parse_error": compact(call.raw_args)}),
    }


def _arguments(args: Any) -> Json:
    return dict(args) if isinstance(args, Mapping) else {}


def _tool_error(call: CallRecord) -> Json | None:
    """Return the error of a call; None for a successful one."""
    if call.outcome == "ok":
        return None
    kind = "approval" if call.outcome == "cancelled" else _ERRORS.get(call.outcome, "unknown")
    return {"type": kind, "message": f"{call.outcome}: {call.result.get('reason', '')}"}


def _tool(tool: Mapping[str, Any]) -> Json:
    """Return a tool with the part of its schema that Inspect supports."""
    schema = tool["parameters"]
    return {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": {
            "type": "object",
            "properties": {
                name: {key: argument[key] for key in _SCHEMA_KEYS if key in argument}
                for name, argument in schema.get("properties", {}).items()
                if isinstance(argument, Mapping)
            },
            "required": list(schema.get("required", ())),
        },
    }
