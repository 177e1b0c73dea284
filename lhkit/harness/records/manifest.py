"""The `manifest.json` of a run folder, and the differences between two manifests. Pure.

Unknown fields of a manifest are ignored and kept.
"""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lhkit.base.files import installed_version
from lhkit.base.json_values import canonical, compact, json_or_repr
from lhkit.conversation.responses import weights_label
from lhkit.conversation.tool_results import MIN_RESULT_BYTES, ResultFormat
from lhkit.harness.records.record import MAX_SECONDS, SCHEMA, parse_moment
from lhkit.harness.records.tool_specs import ToolSpec
from lhkit.harness.records.wall_clock import TimeBreakdown
from lhkit.harness.scenarios.sample_id import MAX_REPEATS
from lhkit.harness.scenarios.scenario_filter import ScenarioSelection
from lhkit.harness.scenarios.user import User

_Scalar: TypeAlias = str | int | float | bool | None

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Seconds = Annotated[float, Field(ge=-MAX_SECONDS, le=MAX_SECONDS)]


def _checked_moment(text: str) -> str:
    if parse_moment(text) is None:
        raise ValueError("not an ISO 8601 date and time of a year from 1000 to 9000")
    return text


_Moment = Annotated[str, AfterValidator(_checked_moment)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class AssistantLimits(_Part):
    """Limits of the assistant, as far as exports need them."""

    max_result_bytes: Annotated[int, Field(ge=MIN_RESULT_BYTES, le=2**31)] = 2**31
    truncation_hint: str = ""
    result_format: ResultFormat | None = None


class Prompt(_Part):
    """The prompt in one language: hashes, limits and the tools in full.

    Attributes:
        tools_sha256: of the tools as rendered, including their order and that of their keys.
        rendering_sha256: of the request for a conversation with all kinds of messages, which
            covers dialect, tool results, stop texts and constraint; empty for a scripted model.
        texts_sha256: of the dispatcher's error messages.
    """

    instructions_sha256: str = ""
    tools_sha256: str = ""
    rendering_sha256: str = ""
    texts_sha256: str = ""
    assistant: AssistantLimits = AssistantLimits()
    tools: Sequence[ToolSpec] = ()


class ScoreSource(_Part):
    """A score of the run: the hash of its source, and whether it is a check."""

    source_sha256: str = ""
    fails: bool = False


class Invocation(_Part):
    """One call of `replay` on a folder.

    Attributes:
        ended_at: None while it runs, or if it was killed.
        concurrency_reason: why so many samples ran at once: `asked` (an option), `batch` (the
            server's batch size), `cache` (the size of its cache), `vllm` (one that reports
            neither), `few_cores`, `replicas`, `unknown`; empty for a script or a caller of Python.
        order_seed: the seed of the random order of the scenarios; None for that of their files.
        kept: the samples reused from earlier invocations.
        changes: differences from the previous invocation that made samples outdated.
        remarks: sentences about what could not be verified.
        warmed_up: the number of prompt prefixes that the server read before the first sample.
        setup_s: seconds before `replay`, without `server_s`.
        server_s: seconds until the server for this invocation had started.
        wall_s: seconds in `replay`.
        model_s: seconds of `wall_s` with an open request.
        writing_s: seconds of `wall_s` with no open request and a record being written.
    """

    started_at: _Moment | None = None
    ended_at: _Moment | None = None
    concurrency: _Count = 1
    concurrency_reason: str = ""
    order_seed: _Count | None = None
    kept: _Count = 0
    completed: _Count = 0
    invalid: _Count = 0
    finished: bool = False
    changes: Sequence[Mapping[str, str]] = ()
    remarks: Sequence[str] = ()
    warmed_up: _Count = 0
    setup_s: _Seconds | None = None
    server_s: _Seconds | None = None
    wall_s: _Seconds = 0.0
    model_s: _Seconds = 0.0
    writing_s: _Seconds = 0.0


class Manifest(_Part):
    """The contents of a `manifest.json`; every field may be absent.

    Attributes:
        locales: the prompt of each language.
        tools: the tools of scenarios that do not have all of their language, in order: a name, or
            the tool in full where another scenario describes it otherwise.
        scenarios: the hash of each scenario.
        several_prompts: scenarios of one language differ in more of their prompt than the tools.
        contexts: the hash of the context lines of each scenario that has any.
        code_sha256: the hash of the tools' source; empty if it is unknown.
        criteria: the toolset's texts of the scenarios' criteria, by criterion and language.
        logprobs: log-probabilities were requested.
        approvals: the policy of approvals (`lhkit.confirm.policy`) that let writes run without a
            question; None without one.
        content_hashes: content hashes by scenario, one for each repeat, or one for all repeats.
        selection: how the scenarios were selected; None for a run of all of them.
        rescored_from: the run that the records were rescored from.
        scores: the user's scores whose results count, by name.
    """

    schema_version: int = Field(default=SCHEMA, alias="schema")
    versions: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
    command: Sequence[str] = ()
    hardware: dict[str, _Scalar] = Field(default_factory=dict)
    models: Sequence[dict[str, _Scalar]] = ()
    sampling: Sequence[dict[str, _Scalar]] = ()
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    toolset: str = ""
    user: str = ""
    locales: dict[str, Prompt] = Field(default_factory=dict)
    tools: dict[str, Sequence[str | ToolSpec]] = Field(default_factory=dict)
    several_prompts: bool = False
    scenarios: dict[str, str] = Field(default_factory=dict)
    contexts: dict[str, str] | None = None
    code_sha256: str = ""
    criteria: dict[str, dict[str, str]] = Field(default_factory=dict)
    logprobs: bool = False
    approvals: dict[str, Any] | None = None
    selection: ScenarioSelection | None = None
    content_hashes: dict[str, Annotated[Sequence[str], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    invocations: Sequence[Invocation] = ()
    rescored_from: str = ""

    def tools_of(self, scenario: str, locale: str) -> tuple[Mapping[str, Any], ...]:
        """Return the tools that a scenario was run with."""
        known = {tool["name"]: tool for tool in self.locales.get(locale, Prompt()).tools}
        listed = self.tools.get(scenario, tuple(known))
        tools = (known.get(tool) if isinstance(tool, str) else tool for tool in listed)
        return tuple(tool for tool in tools if tool is not None)

    rescored_with: dict[str, str] = Field(default_factory=dict)
    scores: dict[str, ScoreSource] = Field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the fields that are set, as plain JSON."""
        return self.model_dump(by_alias=True, exclude_unset=True, warnings=False)

    @property
    def score_sources(self) -> dict[str, str]:
        """The hash of the source of each score that counts, by name."""
        return {name: score.source_sha256 for name, score in self.scores.items()}

    @property
    def simulated_user(self) -> User:
        """The simulated user; `script` if the manifest has none."""
        return cast(User, self.user or "script")

    def time_breakdown(self) -> TimeBreakdown | None:
        """Return where the time of the newest invocation went; None if not measured."""
        last = self.invocations[-1] if self.invocations else Invocation()
        if not last.completed or last.setup_s is None or last.server_s is None:
            return None
        return TimeBreakdown(
            setup_s=last.setup_s,
            server_s=last.server_s,
            model_s=last.model_s,
            writing_s=last.writing_s,
            harness_s=max(0.0, last.wall_s - last.model_s - last.writing_s),
        )


_VERSIONS_OF = ("lhkit", "jsonschema", "pydantic", "ruamel.yaml", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The metadata of an invocation that only its caller knows.

    Attributes:
        started_at: when it started, with a time zone.
        command: the command line, if there was one.
        setup_s: seconds of setup before `replay`, without `server_s`; None if not measured.
        server_s: seconds until a server had started for it; None if not measured.
        concurrency_reason: as of `Invocation`.
    """

    started_at: datetime | None = None
    command: Sequence[str] = ()
    git_commit: str | None = None
    hardware: Mapping[str, Any] = field(default_factory=dict)
    setup_s: float | None = None
    server_s: float | None = None
    concurrency_reason: str = ""


def text_sha256(text: str) -> str:
    """Return the hash of a text, as manifests store it."""
    return hashlib.sha256(text.encode()).hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect verdicts."""
    return {
        "python": platform.python_version(),
        **{name: installed_version(name) or "not installed" for name in _VERSIONS_OF},
    }


_IDENTITY = (
    *("model", "weights", "server", "dtype", "device"),
    *("dialect", "template_sha256", "constraint"),
    "stress",
)
_SAMPLING = ("max_tokens", "temperature", "seed")
_HASHED = frozenset(
    {"prompt", "tools", "rendering", "texts", "context", "scenario", "code", "template_sha256"}
)
_HASH_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between the configurations of two runs.

    Attributes:
        what: model, weights, server, dtype, device (graphics card), dialect, template_sha256 (of
            the chat template), constraint, stress, sampling, logprobs, prompt, tools, tools_order,
            rendering (the request format of a dialect), texts (the dispatcher's error messages),
            assistant (its limits), context, user, approvals (the policy), code (of the tools),
            lhkit or scenario.
        where: the locale, the scenario or the field.
        before: a name, a number or the start of a hash.
        after: as `before`.
    """

    what: str
    where: str = ""
    before: str = ""
    after: str = ""


def manifest_changes(before: Manifest, after: Manifest) -> tuple[Change, ...]:
    """Return the differences between two manifests, scenarios last; of versions only lhkit's.

    A value that only one manifest has, such as a scenario, is not a difference.
    """
    return tuple(change for change in _differences(before, after) if change.before and change.after)


def _differences(before: Manifest, after: Manifest) -> Iterator[Change]:
    prompts = [
        (locale, before.locales[locale], after.locales[locale])
        for locale in sorted(before.locales.keys() & after.locales.keys())
    ]
    requested: list[Change] = []
    for what in _IDENTITY:
        requested += _change(what, _values(before.models, what), _values(after.models, what))
    for name in _SAMPLING:
        old, new = _values(before.sampling, name), _values(after.sampling, name)
        requested += _change("sampling", old, new, name)
    requested += _change("logprobs", *("on" if m.logprobs else "off" for m in (before, after)))
    for locale, old_prompt, new_prompt in prompts:
        hashes = old_prompt.instructions_sha256, new_prompt.instructions_sha256
        requested += _change("prompt", *hashes, locale)
    for locale, old_prompt, new_prompt in prompts:
        requested += _tool_changes(old_prompt, new_prompt, locale)
    yield from requested
    if all(change.what == "weights" for change in requested):  # other changes explain it
        for locale, old_prompt, new_prompt in prompts:
            hashes = old_prompt.rendering_sha256, new_prompt.rendering_sha256
            yield from _change("rendering", *hashes, locale)
    for locale, old_prompt, new_prompt in prompts:
        yield from _change("texts", old_prompt.texts_sha256, new_prompt.texts_sha256, locale)
        old_limits, new_limits = (
            prompt.assistant.model_dump(exclude_unset=True) for prompt in (old_prompt, new_prompt)
        )
        for name in sorted(old_limits.keys() & new_limits.keys()):
            yield from _change("assistant", str(old_limits[name]), str(new_limits[name]), name)
    if before.contexts is not None and after.contexts is not None:
        same = [
            name for name, sha256 in after.scenarios.items() if before.scenarios.get(name) == sha256
        ]
        lines = [
            text_sha256(canonical([contexts.get(name, "") for name in same]))
            for contexts in (before.contexts, after.contexts)
        ]
        yield from _change("context", lines[0], lines[1])
    yield from _change("user", before.user, after.user)
    yield from _change("approvals", *(_approvals(manifest) for manifest in (before, after)))
    yield from _change("code", before.code_sha256, after.code_sha256)
    yield from _change("lhkit", before.versions.get("lhkit", ""), after.versions.get("lhkit", ""))
    for scenario, sha256 in after.scenarios.items():
        yield from _change("scenario", before.scenarios.get(scenario, ""), sha256, scenario)


def _approvals(manifest: Manifest) -> str:
    """Return the start of the hash of the policy of approvals; `-` without one."""
    if manifest.approvals is None:
        return "-"
    return text_sha256(json_or_repr(manifest.approvals, sort_keys=True))[:_HASH_CHARS]


def _tool_changes(before: Prompt, after: Prompt, locale: str) -> Iterator[Change]:
    """Yield a change of the tools, or of the order of tools or of keys in their schemas."""
    old, new = (  # success phrases do not reach the model
        [{k: v for k, v in tool.items() if k != "claims"} for tool in prompt.tools]
        for prompt in (before, after)
    )
    if sorted(map(canonical, old)) != sorted(map(canonical, new)):
        hashes = [text_sha256(canonical(tools)) for tools in (old, new)]
        yield from _change("tools", hashes[0], hashes[1], locale)
    elif compact(old) != compact(new):
        names = [", ".join(str(tool["name"]) for tool in tools) for tools in (old, new)]
        if names[0] == names[1]:
            names = [text_sha256(compact(tools))[:_HASH_CHARS] for tools in (old, new)]
        yield from _change("tools_order", names[0], names[1], locale)


def _change(what: str, before: str, after: str, where: str = "") -> Iterator[Change]:
    if before != after:
        cut = slice(_HASH_CHARS if what in _HASHED else None)
        yield Change(what=what, where=where, before=before[cut], after=after[cut])


def _values(rows: Iterable[Mapping[str, Any]], name: str) -> str:
    """Return the distinct values of a field, joined; `-` for an empty one."""
    values: set[str] = set()
    for row in rows:
        value = row.get(name)
        if name == "weights":  # a model whose weights have only a hash is shown by its name
            sha256 = str(row.get("weights_sha256") or "")
            value = weights_label(str(value or (row.get("model") if sha256 else "") or ""), sha256)
        values.add("-" if value in {None, ""} else str(value))
    return ", ".join(sorted(values))
