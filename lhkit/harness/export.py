"""A run in the formats of others: OpenAI's messages, tables in Parquet, a log of Inspect.

Each file is written piece by piece and is whole or not there; records are read one at a time.
"""

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

from lhkit.errors import MissingPackageError
from lhkit.events import GateOutcome
from lhkit.files import drafted, write_whole
from lhkit.harness.frames import (
    calls_frame,
    latency_frame,
    scenarios_frame,
    turns_frame,
    violations_frame,
)
from lhkit.harness.log import asked_of
from lhkit.harness.record import (
    CallRecord,
    ModelCallRecord,
    SampleRecord,
    TurnRecord,
    Verdict,
    moment_of,
)
from lhkit.harness.results import Run
from lhkit.json_values import compact
from lhkit.messages import UserMessage
from lhkit.models.dialects.transcript import words_of
from lhkit.responses import Usage
from lhkit.text import whole_unicode
from lhkit.tool_results import ToolOk, encode_tool_result, envelope, result_in

_Json: TypeAlias = dict[str, Any]


def _json(value: Any) -> bytes:
    """Return compact JSON in UTF-8, Korean readable; a lone surrogate becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return whole_unicode(text).encode()


# A conversation as the model had it, message by message. Pure.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
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


def _messages_of(turn: TurnRecord) -> Iterator[_Said]:
    """Yield what the model said in a turn; calls that no request is named for come first."""
    for number, request in ((None, None), *enumerate(turn.model_calls)):
        said = _Said(
            request=request, calls=[call for call in turn.calls if call.model_call == number]
        )
        if said.text.strip() or said.named:
            yield said


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What a manifest says of the conversations in one language."""

    tools: Sequence[Mapping[str, Any]] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)

    def read(self, call: CallRecord) -> str:
        """Return the result of a call as the model read it."""
        result = result_in(call.result)
        if result is None:
            return compact(call.result)
        if not isinstance(result, ToolOk) or "max_result_bytes" not in self.limits:
            return compact(envelope(result))
        limits = self.limits
        hint = {"hint": limits["truncation_hint"]} if "truncation_hint" in limits else {}
        return encode_tool_result(result, int(limits["max_result_bytes"]), **hint)


def _told_of(record: SampleRecord, run: Run, told: Mapping[str, _Told]) -> _Told:
    """Return what is known of one conversation's tools: those of its scenario, and what came."""
    known = told.get(record.locale, _Told())
    names = run.manifest.get("tools", {}).get(record.sample_id.scenario)
    tools = [tool for tool in known.tools if names is None or tool.get("name") in names]
    came = [tool for turn in record.evidence.turns for tool in turn.new_tools]
    return replace(known, tools=(*tools, *came))


def _told(run: Run) -> dict[str, _Told]:
    """Return what the manifest says, by language."""
    return {
        locale: _Told(tools=told.get("tools", ()), limits=told.get("assistant", {}))
        for locale, told in run.manifest.get("locales", {}).items()
    }


# OpenAI's messages: one conversation a line, as `lhkit import openai-messages` reads them.


def write_openai_messages(run: Run, file: Path) -> None:
    """Write each conversation with its tools as a line of JSON; the format of fine-tuning, too.

    The instructions and the line of context beside what the user said are no part of a record,
    and hints of the application are not for the model: these are left out.

    Raises:
        OSError: the disk does not take it.
    """
    write_whole(file, (json_line(each) for _, each in conversations_of(run)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTexts:
    """Texts of the prompt that a record does not contain.

    `instructions` is the text of the system message, `contexts` has the context line of each turn.
    `unlearned` are the turns, from 0, whose reply is not a training target.
    """

    instructions: str = ""
    contexts: Sequence[str] = ()
    unlearned: Collection[int] = ()


def conversations_of(
    run: Run, texts: Callable[[SampleRecord], PromptTexts | None] = lambda _: PromptTexts()
) -> Iterator[tuple[SampleRecord, _Json]]:
    """Yield records with their conversations, except those for which `texts` returns None."""
    told = _told(run)
    for record in run.records:
        if (prompt := texts(record)) is not None:
            yield record, _conversation(record, _told_of(record, run, told), prompt)


def json_line(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    return _json(value) + b"\n"


def _conversation(record: SampleRecord, told: _Told, texts: PromptTexts) -> _Json:
    """Return the messages of a conversation, and its tools if it has any.

    A reply that is not a training target has OpenAI's `"weight": 0`.
    """
    messages: list[_Json] = []
    if texts.instructions.strip():
        messages.append({"role": "system", "content": texts.instructions.strip()})
    for number, turn in enumerate(record.evidence.turns):
        context = texts.contexts[number] if number < len(texts.contexts) else ""
        user = UserMessage(text=turn.user, context=context)
        messages.append({"role": "user", "content": words_of(user)})
        for said in _messages_of(turn):
            exchange = _exchange(said, told, _count(messages))
            if number in texts.unlearned and not said.named:
                exchange[0]["weight"] = 0
            messages += exchange
    functions = [
        {key: tool[key] for key in ("name", "description", "parameters") if key in tool}
        for tool in told.tools
    ]
    tools = [{"type": "function", "function": function} for function in functions]
    return {"messages": messages, **({"tools": tools} if tools else {})}


def _count(messages: Iterable[Mapping[str, Any]]) -> int:
    return sum(message["role"] == "tool" for message in messages)


def _exchange(said: _Said, told: _Told, first: int) -> list[_Json]:
    """Return a message of the model and the results of its calls, numbered from `first`."""
    ids = [call_id(number) for number in range(first, first + len(said.named))]
    written = [
        {
            "id": name,
            "type": "function",
            "function": {"name": call.tool, "arguments": compact(call.raw_args)},
        }
        for name, call in zip(ids, said.named, strict=True)
    ]
    return [
        {
            "role": "assistant",
            "content": said.text or None,
            **({"tool_calls": written} if written else {}),
        },
        *(
            {
                "role": "tool",
                "tool_call_id": name,
                "name": call.tool,
                "content": told.read(call),
            }
            for name, call in zip(ids, said.named, strict=True)
        ),
    ]


def call_id(number: int) -> str:
    """Return the id of a conversation's call: nine letters and digits, as strict servers want."""
    return f"call{number:05d}"


# Parquet: the frames of a run, a file each.


FRAMES: Final = {
    "samples": scenarios_frame,
    "turns": turns_frame,
    "calls": calls_frame,
    "violations": violations_frame,
    "requests": latency_frame,
}
"""The tables by the names of their files, and what makes each of records."""

_AT_ONCE = 2_000
"""So many records become rows together: a row group of each table."""


def write_parquet(run: Run, folder: Path) -> tuple[Path, ...]:
    """Write the frames of a run as `samples.parquet`, `turns.parquet` …; return the files.

    Columns and types are those of the frames (`lhkit.harness.frames`), also of an empty run.

    Raises:
        MissingPackageError: fastparquet is not installed.
        OSError: the disk does not take it.
    """
    try:
        import fastparquet
    except ImportError as error:
        raise MissingPackageError(
            "fastparquet is not installed: in the clone, `pip install -e '.[export]'`"
        ) from error
    files = tuple(folder / f"{name}.parquet" for name in FRAMES)
    with drafted(*files) as drafts:
        for number, records in enumerate(_batches(run.records)):
            for draft, frame in zip(drafts, FRAMES.values(), strict=True):
                table = frame(records)
                for name in table.columns[table.dtypes == "str"]:
                    table[name] = table[name].map(whole_unicode, na_action="ignore").astype("str")
                if number == 0 or len(table):
                    fastparquet.write(
                        str(draft),
                        table,
                        append=number > 0,
                        compression="SNAPPY",
                        has_nulls=True,
                        object_encoding="utf8",
                        write_index=False,
                    )
    return files


def _batches(records: Iterable[SampleRecord]) -> Iterator[list[SampleRecord]]:
    """Yield the records some at a time, and an empty list of none."""
    waiting = iter(records)
    batch = list(islice(waiting, _AT_ONCE))
    yield batch
    while batch := list(islice(waiting, _AT_ONCE)):
        yield batch


# Inspect's log: a zip of JSON files, one for each sample, as `inspect view` shows it.
#
# A repeat is an epoch, a verdict the score C or I, an invalid sample one with an error; what a
# person was asked is an approval. Times are the record's, counted on from when the sample started.


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
    told = _told(run)
    counts: Counter[Verdict] = Counter()
    usage: dict[str, _Json] = {}
    summaries: list[bytes] = []  # as text: of a large run these are all that is held
    with drafted(file) as (draft,), zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as log:
        header = _header(run)
        start = {"version": _LOG_VERSION, "eval": header["eval"], "plan": header["plan"]}
        _put(log, "_journal/start.json", _json(start))
        for record in run.records:
            sample = _InspectSample(record, _told_of(record, run, told), run).json()
            _put(log, f"samples/{sample['id']}_epoch_{sample['epoch']}.json", _json(sample))
            summaries.append(_json(_summary(sample)))
            counts[record.judgement.verdict] += 1
            for model, used in sample["model_usage"].items():
                usage[model] = _sum(usage.get(model, {}), used)
        _put(log, "summaries.json", b"[" + b",".join(summaries) + b"]")
        header["results"] = _results(counts)
        header["stats"]["model_usage"] = usage
        _put(log, "header.json", _json(header))


def _put(log: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(whole_unicode(name), _ZIP_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    log.writestr(entry, content)


def _header(run: Run) -> _Json:
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


def _results(counts: Mapping[Verdict, int]) -> _Json:
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


def _summary(sample: _Json) -> _Json:
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


def _usage(usage: Usage) -> _Json:
    """Return tokens as Inspect counts them: those that were cached are no input."""
    cached = usage.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - (cached or 0),
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **({} if cached is None else {"input_tokens_cache_read": cached}),
    }


def _sum(one: _Json, other: _Json) -> _Json:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


def begin_of(record: SampleRecord, run: Run) -> datetime:
    """Return when a sample began, or its run; 1970 where neither says it in ISO 8601."""
    invocations = run.manifest.get("invocations") or [{}]
    told = (record.started_at, invocations[0].get("started_at"), _UNKNOWN_START)
    return next(moment for each in told if (moment := moment_of(each)))


class _InspectSample:
    """One record on its way to Inspect: its messages, and its events in order of time."""

    def __init__(self, record: SampleRecord, told: _Told, run: Run) -> None:
        self._record, self._told = record, told
        self._begun = begin_of(record, run).astimezone()
        self._key = f"{record.content_hash[:16]}-{record.sample_id.repeat}"
        self._messages: list[_Json] = []
        self._events: list[_Json] = []
        self._usage: dict[str, _Json] = {}
        self._output: _Json = {}
        self._calls = 0

    def json(self) -> _Json:
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

    def _score(self) -> _Json:
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

    def _scored(self, at_s: float) -> _Json:
        return self._event("score", at_s, score=self._score(), scorer=_SCORER)

    def _event(self, kind: str, at_s: float, **more: Any) -> _Json:
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
        spoken = {id(said.request): said for said in _messages_of(turn)}
        sent: list[ModelCallRecord | None] = [None, *turn.model_calls]
        for request in sent:
            said = spoken.get(id(request), _Said(request=request, calls=()))
            if request is None and not said.calls:
                continue
            begun_s = at_s + (request.offset_s + request.duration_s if request else 0.0)
            self._request(said, at_s)
            for number, call in enumerate(said.named, start=self._calls):
                begun_s = self._call(call, call_id(number), begun_s)
            self._calls += len(said.named)

    def _request(self, said: _Said, at_s: float) -> None:
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
        asked = call.gate in {GateOutcome.ACCEPTED, GateOutcome.REJECTED, GateOutcome.FAILED}
        begun_s = at_s + call.validation_s + call.waiting_s
        ended_s = begun_s + call.handler_s
        if asked:
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


def _silence() -> _Json:
    return {"role": "assistant", "content": "", "source": "generate"}


def _error(message: str) -> _Json:
    return {"message": message, "traceback": "", "traceback_ansi": ""}


def _call(call: CallRecord, name: str) -> _Json:
    """Return a call; one whose arguments are no object keeps them as an error of its parsing."""
    is_object = isinstance(call.raw_args, Mapping)
    return {
        "id": name,
        "function": call.tool,
        "arguments": dict(call.raw_args) if is_object else {},
        **({} if is_object else {"parse_error": compact(call.raw_args)}),
    }


def _tool_error(call: CallRecord) -> _Json | None:
    """Return why a call came to nothing; None for one that did its work."""
    if call.outcome == "ok":
        return None
    kind = "approval" if call.outcome == "cancelled" else _ERRORS.get(call.outcome, "unknown")
    return {"type": kind, "message": f"{call.outcome}: {call.result.get('reason', '')}"}


def _tool(tool: Mapping[str, Any]) -> _Json:
    """Return a tool with what Inspect knows of schemas: of each argument its kind and its words."""
    schema = tool.get("parameters", {})
    return {
        "name": tool["name"],
        "description": tool.get("description", ""),
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
