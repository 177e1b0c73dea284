"""What a run has to do: every sample with its content hash, and the facts for the manifest.

Two samples with the same hash are the same question to the same model: the answer is kept. So the
hash covers all that reaches the model, as it is sent: the request is rendered as the model's client
renders it, context lines are made as the controller makes them.
"""

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from lhkit.chat.controller import Assistant
from lhkit.errors import NotIsolatedError, ScenarioError, UsageError
from lhkit.harness.log import MAX_REPEATS, Answered, Questions, versions
from lhkit.harness.record import SampleId, SampleRecord, Verdict
from lhkit.harness.scenario import Scenario, User
from lhkit.harness.sessions import row_keys_of
from lhkit.harness.stress import ModelSource, breaking, is_distractor
from lhkit.json_values import NotJsonError, canonical, compact, plain_json
from lhkit.locales import available_locales, load_catalog
from lhkit.messages import Message, ModelMessage, ToolCallMessage, UserMessage
from lhkit.models.base import ChatModel, ModelRequest, PerConversation
from lhkit.models.cassette import CassetteModel
from lhkit.models.request import request_body
from lhkit.responses import ModelIdentity, Sampling
from lhkit.tool_results import ToolCancelled, ToolErr, ToolOk
from lhkit.tools.registry import ToolRegistry
from lhkit.toolset import (
    Toolset,
    name_of,
    opened,
    require_isolated,
    runs_on_of,
    state_of,
)

_SCENARIO = TypeAdapter(Scenario)
_SHOWN_FAULTS = 10

MOST_SAMPLES = 100_000
"""The most samples of one run: their records are in memory when it is shown."""
MOST_CONCURRENCY = 4_096
MOST_ATTEMPTS = 100
MOST_TOKENS = 1_000_000
"""The most tokens of one model message: more than any context has."""

_UNTOLD = frozenset({"implied", "claims"})
"""What scorers know of a tool and no model reads."""

_Count: TypeAlias = tuple[str, int, int]


def require_playable(
    scenarios: int,
    *,
    repeats: int = 1,
    concurrency: int = 1,
    max_attempts: int = 1,
    max_tokens: int = 1,
) -> None:
    """Refuse numbers that no run can have.

    Raises:
        UsageError: one is below 1 or beyond all use, or all samples together are too many.
    """
    counts: tuple[_Count, ...] = (
        ("repeats", repeats, MAX_REPEATS),
        ("concurrency", concurrency, MOST_CONCURRENCY),
        ("max_attempts", max_attempts, MOST_ATTEMPTS),
        ("max_tokens", max_tokens, MOST_TOKENS),
    )
    for name, number, most in counts:
        if number < 1:
            raise UsageError(f"{name}={number}: give at least 1")
        if number > most:
            raise UsageError(f"{name}={number}: give at most {most}")
    if scenarios * repeats > MOST_SAMPLES:
        raise UsageError(
            f"repeats={repeats} of {scenarios} scenarios are more than {MOST_SAMPLES} samples: "
            "give fewer, or several runs with files of their own"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sample to play. `content_hash` covers all that could change its outcome."""

    scenario: Scenario
    repeat: int
    content_hash: str

    @property
    def sample_id(self) -> SampleId:
        """Which sample this is."""
        return SampleId(scenario=self.scenario.id, repeat=self.repeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Briefing:
    """What a model is told in all scenes alike, in hashes.

    `tools_sha256` is of the tools as they are told, in their order and that of their words.
    `rendering_sha256` is of what a server is sent for a conversation with all kinds of messages:
    the dialect's own words, the envelope of results, stops, constraint; empty for a script.
    `assistant` are the limits of the assistant, `texts_sha256` the refusals of the dispatcher.
    `runs_on` is the program that the tools are run by, where it is another one.
    """

    instructions: str
    tools: Sequence[Mapping[str, Any]]
    tools_sha256: str
    rendering_sha256: str
    assistant: Mapping[str, Any]
    texts_sha256: str
    lhkit: str
    runs_on: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return it for the manifest, with the tools in full and the instructions as a hash."""
        return {
            "instructions_sha256": sha256(self.instructions),
            "tools_sha256": self.tools_sha256,
            "rendering_sha256": self.rendering_sha256,
            "texts_sha256": self.texts_sha256,
            "assistant": dict(self.assistant),
            "tools": self.tools,
            **({"runs_on": dict(self.runs_on)} if self.runs_on else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One scenario, and all that the model is told in it.

    `contexts_sha256` is of the lines that stand beside the user's; empty where there are none.
    """

    scenario: Scenario
    identity: ModelIdentity
    sampling: Sampling
    told: Briefing
    told_sha256: str
    scenario_sha256: str
    contexts_sha256: str

    def job(self, repeat: int) -> Job:
        """Return one sample of this scene."""
        asked = _asked_sha256(self.identity, seeded(self.sampling, repeat))
        content = f"{self.scenario_sha256} {self.contexts_sha256} {self.told_sha256} {asked}"
        content_hash = hashlib.sha256(content.encode()).hexdigest()
        return Job(scenario=self.scenario, repeat=repeat, content_hash=content_hash)

    def questions(self, repeats: int) -> list[str]:
        """Return the content hash of each repeat; one hash where all ask the same."""
        different = 1 if self.sampling.seed is None else repeats
        return [self.job(repeat).content_hash for repeat in range(different)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All samples, in order. `toolset` is the name of what they are played in."""

    scenes: tuple[Scene, ...]
    repeats: int
    toolset: str = ""
    user: User = "script"

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Every repeat of every scene."""
        return tuple(self.each_job())

    @property
    def questions(self) -> Questions:
        """The content hash of every sample."""
        hashes = {each.scenario.id: each.questions(self.repeats) for each in self.scenes}
        return Questions(hashes, self.repeats)

    def each_job(self) -> Iterator[Job]:
        """Yield every repeat of every scene, and hold none."""
        for scene in self.scenes:
            hashes = scene.questions(self.repeats)
            for repeat in range(self.repeats):
                content_hash = hashes[min(repeat, len(hashes) - 1)]
                yield Job(scenario=scene.scenario, repeat=repeat, content_hash=content_hash)

    def kept(self, found: Iterable[SampleRecord]) -> dict[SampleId, SampleRecord]:
        """Return, by sample, the newest valid record that answers exactly what is asked now."""
        asked = self.questions
        return {
            record.sample_id: record
            for record in found
            if asked.get(record.sample_id) == record.content_hash
            and record.judgement.verdict is not Verdict.INVALID
        }

    def is_answered_by(self, found: Iterable[Answered]) -> bool:
        """Return whether nothing would be left to play."""
        asked = self.questions
        valid = {
            sample
            for (sample, question), is_valid in found
            if is_valid and asked.get(sample) == question
        }
        return len(valid) == len(asked)

    def openings(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """Return one job for each instructions with tools that several of the jobs begin with."""
        scenes = {scene.scenario.id: scene for scene in self.scenes}
        first: dict[tuple[ModelIdentity, str, str], Job] = {}
        counted: Counter[tuple[ModelIdentity, str, str]] = Counter()
        for job in jobs:
            scene = scenes[job.scenario.id]
            beginning = (scene.identity, scene.told.instructions, scene.told.tools_sha256)
            first.setdefault(beginning, job)
            counted[beginning] += 1
        return tuple(job for beginning, job in first.items() if counted[beginning] > 1)

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says: toolset, models, sampling, hashes of prompts and scenarios."""
        locales = {scene.scenario.locale: scene for scene in self.scenes}
        tools = self._tools
        return {
            "models": [asdict(each) for each in dict.fromkeys(s.identity for s in self.scenes)],
            "sampling": [asdict(each) for each in dict.fromkeys(s.sampling for s in self.scenes)],
            "repeats": self.repeats,
            "toolset": self.toolset,
            "user": self.user,
            "locales": {
                locale: {**scene.told.facts(), "tools": list(tools[locale].values())}
                for locale, scene in locales.items()
            },
            **self._own_tools,
            "scenarios": {each.scenario.id: each.scenario_sha256 for each in self.scenes},
            "contexts": {
                each.scenario.id: each.contexts_sha256
                for each in self.scenes
                if each.contexts_sha256
            },
            "questions": {each.scenario.id: each.questions(self.repeats) for each in self.scenes},
        }

    @property
    def _tools(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """The tools of all scenarios of a language, by name."""
        found: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        for scene in self.scenes:
            for tool in scene.told.tools:
                found[scene.scenario.locale].setdefault(tool["name"], tool)
        return found

    @property
    def _own_tools(self) -> dict[str, dict[str, list[str]]]:
        """The names of the tools of each scenario that has not all of its language."""
        tools = self._tools
        named = {
            scene.scenario.id: [tool["name"] for tool in scene.told.tools]
            for scene in self.scenes
            if len(scene.told.tools) < len(tools[scene.scenario.locale])
        }
        return {"tools": named} if named else {}


def clock_of(source: ModelSource, *, concurrency: int) -> Callable[[], float]:
    """Return what a run measures with: a monotonic clock, or the recorded time of a cassette.

    Recorded times of conversations that play at once would add up, so these get the machine's.
    """
    if isinstance(source, CassetteModel) and concurrency == 1:
        return source.clock
    return time.perf_counter


def plan_run(
    scenarios: Sequence[Scenario],
    model: ModelSource,
    toolset: Toolset,
    *,
    repeats: int,
    user: User = "script",
) -> Plan:
    """Open each scenario's world once and return what there is to play, as `user` would click.

    Raises:
        ScenarioError: worlds that cannot be, states that are no JSON, or scenarios that the
            model's maker refuses; a line for each of the first faults.
        UsageError: two scenarios have one id.
    """
    counted = Counter(scenario.id for scenario in scenarios)
    if counted and max(counted.values()) > 1:
        twice = ", ".join(each for each, count in counted.items() if count > 1)
        raise UsageError(f"several scenarios have one id, {twice}: give each its own")
    faults: list[str] = []
    scenes: list[Scene] = []
    known = _Known()
    looked_at: set[frozenset[str]] = set()
    for scenario in (each.played_by(user) for each in scenarios):
        tables = frozenset(scenario.world)
        is_first = tables not in looked_at  # of worlds like this one: states may be large
        looked_at.add(tables)
        try:
            scenes.append(_scene(scenario, model, toolset, known, look_at_state=is_first))
        except NotIsolatedError:  # of the toolset: the same for every scenario
            raise
        except UsageError as error:
            faults += [_named(scenario.id, line) for line in str(error).splitlines()]
    if faults:
        raise ScenarioError("\n".join(_first(faults)))
    return Plan(scenes=tuple(scenes), repeats=repeats, toolset=name_of(toolset), user=user)


def _first(faults: Sequence[str]) -> list[str]:
    """Return a screen of faults; so many of one kind are mostly one mistake."""
    if len(faults) <= _SHOWN_FAULTS:
        return list(faults)
    more = f"… and {len(faults) - _SHOWN_FAULTS} more: `lhkit lint` lists all, with their lines"
    return [*faults[:_SHOWN_FAULTS], more]


def _named(scenario_id: str, line: str) -> str:
    return line if line.startswith(f"{scenario_id}.") else f"{scenario_id}.{line}"


def _scene(
    scenario: Scenario,
    model: ModelSource,
    toolset: Toolset,
    known: "_Known",
    *,
    look_at_state: bool,
) -> Scene:
    with opened(toolset, scenario.world, scenario.locale) as session:
        registry, assistant = session.registry, session.assistant
        if look_at_state:
            row_keys_of(session, state_of(session))  # refuses what cannot be compared
        # refuses a tool that is not there
        breaking(registry, scenario.faults, coming=scenario.called)
        identity = chosen_model(model, scenario, registry, toolset).identity
        runs_on = runs_on_of(session)
        told, told_sha256 = known.told(scenario.locale, registry, assistant, identity, runs_on)
        return Scene(
            scenario=scenario,
            identity=identity,
            sampling=assistant.sampling,
            told=told,
            told_sha256=told_sha256,
            scenario_sha256=scenario_hash(scenario),
            contexts_sha256=_contexts_sha256(scenario, assistant),
        )


def _contexts_sha256(scenario: Scenario, assistant: Assistant) -> str:
    """Return the hash of the lines that the assistant adds to the user's; empty if to none."""
    try:
        lines = [assistant.context(turn.user) for turn in scenario.turns]
    except Exception as error:  # noqa: BLE001 - boundary: their code spoils its own sample only
        lines = [repr(error)]
    return sha256(lines) if any(lines) else ""


@lru_cache(maxsize=64)
def _asked_sha256(identity: ModelIdentity, sampling: Sampling) -> str:
    """Return the hash of who is asked, and how: the same for most samples of a run."""
    model = asdict(replace(identity, base_url=""))  # it may move to a new port
    if identity.weights_sha256:
        del model["weights"]  # a name of the same content
    if identity.dtype in {"", "bfloat16"}:
        del model["dtype"]  # what was asked before there was a choice is the same question
    return sha256({"model": model, "sampling": asdict(sampling)})


_ELSEWHERE = ("instructions", "context", "deps", "sampling")
"""Fields of an assistant that are hashed as what they say; `deps` are the scenario's world."""

_MODEL_TEXTS = ("dispatch.", "validation.")
"""Texts of the locales that come back to a model as the result of its call."""

_CONVERSATION: tuple[Message, ...] = (
    UserMessage(text="hello", context="[now]"),
    ToolCallMessage(name="look", args={"at": 1}, result=ToolOk({"seen": "x" * 4096}), text="so"),
    ToolCallMessage(name="look", args={"at": None}, result=ToolErr("code", "why"), index=1),
    ToolCallMessage(name="", args={}, result=ToolCancelled(), index=2, raw='{"name":"l'),
    ModelMessage(text="there"),
    UserMessage(text="and"),
    ToolCallMessage(name="look", args={"at": [True, 1.5, {"a": "b"}]}, result=ToolOk({"n": 1})),
)
"""One message of each kind, so that what a dialect makes of each is in the hash."""


class _Known:
    """What was hashed before: most scenarios share their tools and all that stands around them.

    The hash of tools leaves out what only the scorers know: a better word on that asks nothing
    anew.
    """

    def __init__(self) -> None:
        self._tools: dict[int, tuple[ToolRegistry, list[dict[str, Any]], str]] = {}
        self._told: dict[tuple[Any, ...], tuple[Briefing, str]] = {}
        self._lhkit = versions()["lhkit"]

    def told(
        self,
        locale: str,
        registry: ToolRegistry,
        assistant: Assistant,
        identity: ModelIdentity,
        runs_on: Mapping[str, str],
    ) -> tuple[Briefing, str]:
        """Return what a model is told, and its hash."""
        tools, tools_sha256 = self._tools_of(registry)
        limits = {
            each.name: plain_json(getattr(assistant, each.name))
            for each in fields(Assistant)
            if each.name not in _ELSEWHERE
        }
        others = canonical([limits, runs_on])
        key = (locale, tools_sha256, assistant.instructions, others, identity)
        if key not in self._told:
            told = Briefing(
                instructions=assistant.instructions,
                tools=tools,
                tools_sha256=tools_sha256,
                rendering_sha256=_rendering_sha256(registry, assistant.instructions, identity),
                assistant=limits,
                texts_sha256=_texts_sha256(locale),
                lhkit=self._lhkit,
                runs_on=runs_on,
            )
            self._told[key] = (told, sha256({**told.facts(), "tools": None, "lhkit": told.lhkit}))
        return self._told[key]

    def _tools_of(self, registry: ToolRegistry) -> tuple[list[dict[str, Any]], str]:
        """Return the tools of `registry`, kept alive so that its id stays its own."""
        if id(registry) not in self._tools:
            specs = tool_specs(registry)
            asked = [{k: v for k, v in spec.items() if k not in _UNTOLD} for spec in specs]
            ordered = compact(asked)  # the order of tools and words reaches the model, too
            digest = hashlib.sha256(ordered.encode()).hexdigest()
            self._tools[id(registry)] = (registry, specs, digest)
        _, specs, digest = self._tools[id(registry)]
        return specs, digest


def _rendering_sha256(registry: ToolRegistry, instructions: str, identity: ModelIdentity) -> str:
    """Return the hash of what a server is sent; empty for a model that is no such server."""
    request = ModelRequest(
        messages=_CONVERSATION, tools=registry.definitions, instructions=instructions
    )
    try:
        body = request_body(request, identity)
    except UsageError as error:  # the samples meet it, too
        return sha256(str(error))
    return hashlib.sha256(compact(body).encode()).hexdigest() if body else ""


def _texts_sha256(locale: str) -> str:
    """Return the hash of what the dispatcher says to a model; empty for an unknown locale."""
    if locale not in available_locales():
        return ""
    texts = load_catalog(locale).texts
    return sha256({key: text for key, text in texts.items() if key.startswith(_MODEL_TEXTS)})


def chosen_model(
    model: ModelSource, scenario: Scenario, registry: ToolRegistry, toolset: Toolset
) -> ChatModel:
    """Return the model that plays `scenario`.

    Raises:
        NotIsolatedError: its calls come from a file, and the toolset's sessions share real data.
    """
    if callable(model):
        chosen = model(scenario, registry)
    else:
        chosen = model.conversation() if isinstance(model, PerConversation) else model
    if getattr(chosen, "needs_isolation", False):
        require_isolated(toolset, f"run the scripted model {chosen.identity.model}")
    return chosen


def seeded(sampling: Sampling, repeat: int) -> Sampling:
    """Return the sampling of a repeat: a given seed counts up, so that repeats differ."""
    return sampling if sampling.seed is None else replace(sampling, seed=sampling.seed + repeat)


def tool_specs(registry: ToolRegistry) -> list[dict[str, Any]]:
    """Return all that the model, the gate and the scorers know of the tools, as plain data."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "destructive": tool.is_destructive,
            **({"distractor": True} if is_distractor(tool) else {}),
            **({"implied": plain_json(tool.implied)} if tool.implied else {}),
            **({"repeatable": True} if tool.repeatable else {}),
            **({"claims": plain_json(tool.claims)} if tool.is_destructive else {}),
        }
        for tool in registry.definitions
    ]


def scenario_hash(scenario: Scenario) -> str:
    """Return the hash that tells whether a scenario is still the one that was played.

    Raises:
        UsageError: it holds a value that JSON cannot carry.
    """
    try:
        return sha256(_SCENARIO.dump_python(scenario, exclude_defaults=True))
    except NotJsonError as error:  # one made in Python: a file holds nothing else
        raise UsageError(f"the scenario is no JSON: {error}: give plain values") from error


def sha256(content: Any) -> str:
    """Return the hash of plain data, independent of the order of keys."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()
