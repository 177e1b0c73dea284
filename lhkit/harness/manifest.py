"""The `manifest.json` of a run folder: where the records come from, and what may stand in it. Pure.

Of a manifest that somebody else gave us, unknown fields are ignored.
"""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from lhkit.files import version_of
from lhkit.harness.record import MAX_SECONDS, SCHEMA, moment_of
from lhkit.harness.tool_specs import ToolSpec
from lhkit.json_values import canonical, compact
from lhkit.responses import weights_label

MAX_REPEATS = 10_000
"""A manifest that asks for more is no run of ours: every repeat becomes a row in memory."""

_Scalar: TypeAlias = str | int | float | bool | None

_Count = Annotated[int, Field(ge=0, le=2**53)]
_Seconds = Annotated[float, Field(ge=-MAX_SECONDS, le=MAX_SECONDS)]


def _checked_moment(text: str) -> str:
    if moment_of(text) is None:
        raise ValueError("no date and time in ISO 8601, of a year from 1000 to 9000")
    return text


_Moment = Annotated[str, AfterValidator(_checked_moment)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class AssistantLimits(_Part):
    """Limits of the assistant, as far as exports read them."""

    max_result_bytes: Annotated[int, Field(ge=1, le=2**31)] = 2**31
    truncation_hint: str = ""


class Prompt(_Part):
    """What reached the model in one language: hashes, limits and the tools in full."""

    instructions_sha256: str = ""
    tools_sha256: str = ""
    rendering_sha256: str = ""
    texts_sha256: str = ""
    assistant: AssistantLimits = AssistantLimits()
    tools: Sequence[ToolSpec] = ()


class Invocation(_Part):
    """One call of `replay` on a folder; `ended_at` is None while it runs, or if it was killed.

    `changes` differ from the invocation before, where samples were asked anew. `remarks` are
    sentences on what could not be known. `warmed_up` is how many prompt beginnings the server had
    read before the first sample. Of `wall_s` seconds, in `model_s` a request was open, and in
    `writing_s` more a record was written; `setup_s` and `server_s` were before (see
    `metrics.TimeBreakdown`).
    """

    started_at: _Moment | None = None
    ended_at: _Moment | None = None
    concurrency: _Count = 1
    kept: _Count = 0
    played: _Count = 0
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

    `locales` has the prompt of each language, `tools` the names of the tools of a scenario that has
    not all of its language, `questions` the content hashes of the repeats of each scenario.
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
    tools: dict[str, Sequence[str]] = Field(default_factory=dict)
    scenarios: dict[str, str] = Field(default_factory=dict)
    contexts: dict[str, str] | None = None
    questions: dict[str, Annotated[Sequence[str], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    invocations: Sequence[Invocation] = ()
    rescored_from: str = ""
    rescored_with: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, manifest: "Manifest | Mapping[str, Any]") -> "Manifest":
        """Return the manifest of a run from plain data."""
        return manifest if isinstance(manifest, cls) else cls.model_validate(manifest)

    def plain(self) -> dict[str, Any]:
        """Return the fields that are set, as plain JSON."""
        return self.model_dump(by_alias=True, exclude_unset=True, warnings=False)


def manifest_fault(manifest: Mapping[str, Any]) -> str | None:
    """Return the first field that is not valid, and why; None if all are."""
    try:
        Manifest.model_validate(manifest, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


_VERSIONS_OF = ("lhkit", "jsonschema", "pydantic", "ruamel.yaml", "scipy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What only the caller can know. `started_at` should have a time zone.

    `command` is the line that began the invocation, if one did. Before it, `setup_s` seconds went
    by until all was ready, and `server_s` more until a server had started for it; None if nobody
    took the time.
    """

    started_at: datetime | None = None
    command: Sequence[str] = ()
    git_commit: str | None = None
    hardware: Mapping[str, Any] = field(default_factory=dict)
    setup_s: float | None = None
    server_s: float | None = None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that verdicts depend on."""
    return {
        "python": platform.python_version(),
        **{name: version_of(name) or "not installed" for name in _VERSIONS_OF},
    }


_IDENTITY = ("model", "weights", "server", "dtype", "dialect", "constraint", "stress")
_SAMPLING = ("max_tokens", "temperature", "seed")
_HASHED = frozenset({"prompt", "tools", "rendering", "texts", "context", "scenario"})
_HASH_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that two runs were told differently.

    `what` is model, weights, server, dtype, dialect, constraint, stress, sampling, prompt, tools,
    tools_order, rendering (a dialect's own words), texts (refusals of the dispatcher), assistant
    (its limits), context, user (who clicks), lhkit or scenario; `where` the locale, the scenario or
    the field.
    `before` and `after` are names, numbers or parts of hashes.
    """

    what: str
    where: str = ""
    before: str = ""
    after: str = ""


def changes(
    before: Manifest | Mapping[str, Any], after: Manifest | Mapping[str, Any]
) -> tuple[Change, ...]:
    """Return what differs between what two manifests say, scenarios last; versions only of lhkit.

    Only what both say can differ: a scenario that one of them does not name is no change.
    """
    found = _differences(Manifest.of(before), Manifest.of(after))
    return tuple(each for each in found if each.before and each.after)


def _differences(before: Manifest, after: Manifest) -> Iterator[Change]:
    prompts = [
        (locale, before.locales[locale], after.locales[locale])
        for locale in sorted(before.locales.keys() & after.locales.keys())
    ]
    asked: list[Change] = []
    for what in _IDENTITY:
        asked += _change(what, _values(before.models, what), _values(after.models, what))
    for name in _SAMPLING:
        old, new = _values(before.sampling, name), _values(after.sampling, name)
        asked += _change("sampling", old, new, name)
    for locale, then, now in prompts:
        asked += _change("prompt", then.instructions_sha256, now.instructions_sha256, locale)
    for locale, then, now in prompts:
        asked += _tools(then, now, locale)
    yield from asked
    if all(change.what == "weights" for change in asked):  # else it follows from what was asked
        for locale, then, now in prompts:
            yield from _change("rendering", then.rendering_sha256, now.rendering_sha256, locale)
    for locale, then, now in prompts:
        yield from _change("texts", then.texts_sha256, now.texts_sha256, locale)
        limits = [each.assistant.model_dump(exclude_unset=True) for each in (then, now)]
        for name in sorted(limits[0].keys() & limits[1].keys()):
            yield from _change("assistant", str(limits[0][name]), str(limits[1][name]), name)
    if before.contexts is not None and after.contexts is not None:
        same = [
            name for name, sha256 in after.scenarios.items() if before.scenarios.get(name) == sha256
        ]
        lines = [
            _sha256(canonical([contexts.get(name, "") for name in same]))
            for contexts in (before.contexts, after.contexts)
        ]
        yield from _change("context", lines[0], lines[1])
    yield from _change("user", before.user, after.user)
    yield from _change("lhkit", before.versions.get("lhkit", ""), after.versions.get("lhkit", ""))
    for scenario, sha256 in after.scenarios.items():
        yield from _change("scenario", before.scenarios.get(scenario, ""), sha256, scenario)


def _tools(old: Prompt, new: Prompt, locale: str) -> Iterator[Change]:
    """Yield other tools, or the same ones or the words of a schema in another order."""
    then, now = (  # without what only tells how their success is claimed
        [{k: v for k, v in tool.items() if k != "claims"} for tool in prompt.tools]
        for prompt in (old, new)
    )
    if sorted(map(canonical, then)) != sorted(map(canonical, now)):
        yield from _change("tools", _sha256(canonical(then)), _sha256(canonical(now)), locale)
    elif compact(then) != compact(now):
        names = [", ".join(str(tool["name"]) for tool in tools) for tools in (then, now)]
        if names[0] == names[1]:
            names = [_sha256(compact(each))[:_HASH_CHARS] for each in (then, now)]
        yield from _change("tools_order", names[0], names[1], locale)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _change(what: str, before: str, after: str, where: str = "") -> Iterator[Change]:
    if before != after:
        cut = slice(_HASH_CHARS if what in _HASHED else None)
        yield Change(what=what, where=where, before=before[cut], after=after[cut])


def _values(rows: Iterable[Mapping[str, Any]], name: str) -> str:
    """Return the values of a field of all models or samplings, normally one; `-` for nothing."""
    found: set[Any] = set()
    for row in rows:
        value = row.get(name)
        if name == "weights":  # the name of the model where a hash has no other
            sha256 = str(row.get("weights_sha256") or "")
            value = weights_label(str(value or (row.get("model") if sha256 else "") or ""), sha256)
        found.add("-" if value in {None, ""} else str(value))
    return ", ".join(sorted(found))
