"""Judges: scores that ask a model one question about each sample.

    polite = judge("http://127.0.0.1:8000", "Is the assistant polite?")

A judge is a metric. Its error is measured with labels of a person (`Run.agreement`).
"""

import asyncio
import hashlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, cast

from lhkit.base.errors import UsageError
from lhkit.base.json_values import compact
from lhkit.base.text import one_line
from lhkit.conversation.messages import UserMessage
from lhkit.conversation.responses import Finished, ModelIdentity, Sampling
from lhkit.harness.records.score_record import JudgeAnswer, ScoreRecord
from lhkit.harness.results.results import Run
from lhkit.harness.running.judge_prompt import PROMPT, conversation_text
from lhkit.harness.running.score_source import function_sha256
from lhkit.harness.running.scores import Score, ScoreFailure, score
from lhkit.harness.views.sample import Sample
from lhkit.models.base import ChatModel, ModelRequest
from lhkit.models.client.public import connect
from lhkit.models.client.transport import Endpoint

JudgeModel: TypeAlias = ChatModel | Endpoint | str | Callable[[], ChatModel | Awaitable[ChatModel]]
"""A model, the address of a server, or a function that makes a model and may be async."""

Choices: TypeAlias = Sequence[str] | Mapping[str, bool | None]

MIN_LABELS = 30
"""The fewest labels with which the error of a judge counts as measured."""

_MAX_TOKENS = 256
_SHOWN_CHARS = 80
_FRAME = " \t\r\n\"'`*_.,!。！"  # what models put around an answer


def judge(
    model: JudgeModel,
    rubric: str,
    choices: Choices = ("yes", "no"),
    *,
    name: str = "judge",
    fails: bool = False,
    measured: Path | str | None = None,
    limit_s: float | None = None,
    concurrency: int | None = None,
) -> Score:
    """Return a score that asks a model one question about each sample.

        polite = judge("http://127.0.0.1:8000", "Is the assistant polite?", name="polite")

    Temperature is 0, the answer is constrained to the choices on vLLM and llama.cpp, and the
    choices are in reverse order for half of the samples. Prompt and answer are stored with the
    result. The same conversation, rubric, choices and model are asked about once. An answer that is
    none of the choices is a failure of the score.

    Args:
        model: a model; the address of a server, or an `Endpoint`; or a function that returns a
            model and may be async. All but a model are connected with the first question and closed
            after the last one. A model is used in the event loop of the caller.
        rubric: the question about the conversation.
        choices: the answers. The first one counts as True, the others as False; or a mapping of
            each to True, False or None (does not apply).
        name: the name of the score.
        fails: make it a check. That needs `measured`.
        measured: the folder of a run with results of this judge and with labels, at least 30 and of
            both kinds (`lhkit agreement RUN --score NAME --labels FILE`).
        limit_s: seconds for one sample, by default 60.
        concurrency: samples at a time, by default 8.

    Raises:
        UsageError: an argument is invalid, or the error of the judge is not known.
        RunError: `measured` has no run.
    """
    meanings = _meanings(choices)
    if not rubric.strip():
        raise UsageError("The rubric is invalid: it is empty. Give a question, such as 'Polite?'")
    question = Judge(model, rubric.strip(), meanings)
    made = score(question, fails=fails, name=name, limit_s=limit_s, concurrency=concurrency)
    if fails:
        _require_measured(made, measured)
    return made


def _meanings(choices: Choices) -> Mapping[str, bool | None]:
    if isinstance(choices, str) or not isinstance(choices, Sequence | Mapping):
        raise UsageError(f"The choices {choices!r} are invalid: give texts, such as ('yes', 'no')")
    meanings = (
        dict(choices)
        if isinstance(choices, Mapping)
        else {choice: number == 0 for number, choice in enumerate(choices)}
    )
    if not all(_plain(str(choice)) for choice in meanings):
        raise UsageError("The choices are invalid: each must be a text that is not empty")
    if len(meanings) < 2 or len({_plain(str(choice)) for choice in meanings}) < len(choices):
        raise UsageError("The choices are invalid: give at least two different ones")
    if any(not (value is None or isinstance(value, bool)) for value in meanings.values()):
        raise UsageError("The choices are invalid: map each to True, False or None")
    return MappingProxyType(meanings)


def _plain(text: str) -> str:
    """Return an answer without case and what models put around it."""
    return " ".join(text.strip(_FRAME).casefold().split())


def _require_measured(made: Score, folder: Path | str | None) -> None:
    hint = (
        f"The judge {made.name!r} cannot be a check: its error is not known. Compute it as a "
        "metric, label a random part of the samples with `lhkit agreement RUN --score "
        f"{made.name} --labels FILE`, and give measured='RUN'"
    )
    if folder is None:
        raise UsageError(hint)
    run = Run.load(folder)
    sources = run.manifest.score_sources
    name = next((n for n, sha256 in sources.items() if sha256 == made.source.source_sha256), None)
    if name is None:
        raise UsageError(f"{hint}. {folder} has no results of this judge")
    error = run.agreement(name)
    if error.labels < MIN_LABELS or not error.false_yes.whole or not error.false_no.whole:
        raise UsageError(
            f"{hint}. {folder} has {error.labels} labels; it takes {MIN_LABELS}, of both kinds"
        )


class Judge:
    """The question of a judge: call it with a sample and await the answer."""

    def __init__(self, model: JudgeModel, rubric: str, meanings: Mapping[str, bool | None]) -> None:
        self.rubric = rubric
        self.meanings = meanings
        self._given = model
        self._model: ChatModel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._asking: dict[str, asyncio.Lock] = {}
        self._answers: dict[str, JudgeAnswer] = {}

    @property
    def source_sha256(self) -> str:
        """The hash of the question and of what is known of the model before it is connected."""
        model = self._given
        known: str
        if isinstance(model, str):
            known = model
        elif isinstance(model, Endpoint):
            known = repr(replace(model, api_key=None))
        elif hasattr(model, "identity"):
            known = compact(_identity_fields(model.identity))
        else:
            known = function_sha256(model)
        return _sha256(PROMPT, self.rubric, list(self.meanings.items()), known)

    @property
    def is_callers(self) -> bool:
        """Whether the model was given, and so belongs to the event loop of the caller."""
        return hasattr(self._given, "stream")

    def remember(self, results: Iterable[ScoreRecord]) -> None:
        """Use the answers in stored results for the same questions."""
        for result in results:
            if result.judge is not None and not result.error:
                self._answers.setdefault(result.judge.key, result.judge)

    async def __call__(self, sample: Sample) -> JudgeAnswer:
        """Return the answer of the model; one of the choices or not."""
        model = await self._connected()
        conversation = conversation_text(sample)
        identity = compact(_identity_fields(model.identity))
        key = _sha256(PROMPT, conversation, self.rubric, sorted(self.meanings), identity)
        async with self._asking.setdefault(key, asyncio.Lock()):
            if (known := self._answers.get(key)) is None:
                order = tuple(self.meanings)
                if hashlib.sha256(sample.id.encode()).digest()[0] % 2:
                    order = order[::-1]
                prompt = PROMPT.format(
                    conversation=conversation, rubric=self.rubric, choices=" / ".join(order)
                )
                text = await _ask(model, prompt, order)
                known = JudgeAnswer(key=key, model=model.identity.title, prompt=prompt, answer=text)
                if self.choice(known) is not None:
                    self._answers[key] = known
        return known

    def choice(self, answer: JudgeAnswer) -> str | None:
        """Return which choice an answer is; None if it is none of them."""
        given = _plain(answer.answer)
        return next((choice for choice in self.meanings if _plain(choice) == given), None)

    def value(self, answer: JudgeAnswer) -> bool | None:
        """Return what an answer counts as.

        Raises:
            ScoreFailure: it is none of the choices.
        """
        if (choice := self.choice(answer)) is not None:
            return self.meanings[choice]
        shown = one_line(answer.answer, max_chars=_SHOWN_CHARS)
        raise ScoreFailure(
            f"the answer {shown!r} is none of the choices: {', '.join(self.meanings)}"
        )

    async def aclose(self) -> None:
        """Close the model, unless it was given."""
        model, self._model = self._model, None
        if model is not None and not self.is_callers and self._loop is asyncio.get_running_loop():
            await model.aclose()

    async def _connected(self) -> ChatModel:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to a loop
            self._loop, self._model = loop, None
            self._lock, self._asking = asyncio.Lock(), {}
        async with self._lock:
            if self._model is None:
                self._model = await _opened(self._given)
            return self._model


async def _opened(given: JudgeModel) -> ChatModel:
    if isinstance(given, Endpoint | str):
        return await connect(given)
    if hasattr(given, "stream"):
        return cast(ChatModel, given)
    made = given()
    return await made if inspect.isawaitable(made) else made


async def _ask(model: ChatModel, prompt: str, choices: tuple[str, ...]) -> str:
    request = ModelRequest(
        messages=(UserMessage(text=prompt),),
        sampling=Sampling(max_tokens=_MAX_TOKENS, temperature=0.0),
        choices=choices,
    )
    stream: AsyncGenerator[object, None] = model.stream(request)
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, Finished):
                return event.text
    return ""


def _identity_fields(identity: ModelIdentity) -> Mapping[str, str]:
    """Return what decides about a model's answers; its address only where no hash is known."""
    fields = asdict(identity)
    names = ["model", "server", "dialect", "weights", "weights_sha256", "dtype", "template_sha256"]
    return {
        name: fields[name] for name in [*names, *([] if identity.weights_sha256 else ["base_url"])]
    }


def _sha256(*parts: object) -> str:
    return hashlib.sha256(compact(list(parts)).encode()).hexdigest()
