"""The policy of approvals: which tools may run without a question, as it was measured.

`lhkit approvals … --write FILE` writes one. `PolicyGate` follows it: a call runs unasked only if
its tool may, and model, prompt, tools, dialect and constraint are those of the measurement. In any
other case the wrapped gate asks.

Not covered: the data that the tools read, what users ask for, a model that was exchanged under the
name by which its server knows it, and the parts of a prompt that a toolset makes anew for each
message.
"""

import hashlib
import json
import logging
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file, write_atomically
from lhkit.base.json_values import NotJsonError, compact, shown
from lhkit.base.locales import Catalog
from lhkit.confirm.decision import Approve, Decision, QuestionOutcome, decision_of
from lhkit.confirm.form import Form, FormAction, FormAnswer
from lhkit.confirm.gate import ConfirmGate, ConfirmRequest, GuardedGate, is_person

_log = logging.getLogger(__name__)

SCHEMA: Final = 1

_Text = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Between = Annotated[float, Field(gt=0, lt=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ToolRule(_Part):
    """Whether a tool may run without a question, and the evidence for it.

    Attributes:
        rule: `ask`; `run`; or `run_above` for calls whose weakest token has a log-probability above
            `above`.
        above: that log-probability, at most 0; None unless the rule is `run_above`.
        proposed: the calls that were proposed.
        wrong: those of them that were wrong.
        scenarios: the scenarios (or chats) with such calls, which are independent.
        upper: the upper limit of the risk, from 0 to 1; None if nothing was measured.
    """

    rule: Literal["ask", "run", "run_above"]
    above: Annotated[float, Field(le=0)] | None = None
    proposed: _Count
    wrong: _Count
    scenarios: _Count
    upper: _Share | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.rule == "run_above") is (self.above is None):
            raise ValueError("above belongs to the rule run_above, and only to it")
        if self.wrong > self.proposed or self.scenarios > self.proposed:
            raise ValueError("wrong and scenarios must be at most proposed")
        return self

    def may_run(self, logprob: float | None) -> bool:
        """Return whether a call with this weakest log-probability may run without a question."""
        if self.above is None:
            return self.rule == "run"
        return logprob is not None and self.above < logprob <= 0


class Measured(_Part):
    """What was measured, or is in front: equal only if no letter of it differs.

    Made by `lhkit.harness.running.measured`. A hash is `sha256:…`, after a name where there is one.

    Attributes:
        model: the model with its weights and server, and the temperature.
        prompt: the instructions, the texts that the model reads in results, and the limits.
        tools: the hash of each tool as the model reads it (`tool_sha256`), in their order.
        dialect: the dialect, with the hash of all that is rendered by it or by the chat template.
        constraint: of decoding: `off`, `auto` or `required`.
        code: the tools' code; empty if it is unknown, as that of an MCP server.
    """

    model: _Text
    prompt: _Text
    tools: Annotated[dict[str, _Text], Field(min_length=1)]
    dialect: _Text
    constraint: _Text
    code: str = ""

    def differences(self, front: "Measured") -> tuple[str, ...]:
        """Return the parts in which what is in front differs from what was measured.

        Code that was unknown when it was measured is not compared.
        """
        parts = [
            name for name in ("model", "prompt") if getattr(self, name) != getattr(front, name)
        ]
        parts += ["tools"] if [*self.tools.items()] != [*front.tools.items()] else []
        # all other parts are rendered by the dialect, so that they change its hash
        is_dialect = self.dialect != front.dialect
        if is_dialect and (not parts or _name(self.dialect) != _name(front.dialect)):
            parts.append("dialect")
        parts += ["constraint"] if self.constraint != front.constraint else []
        parts += ["code"] if self.code and self.code != front.code else []
        return tuple(parts)

    def other_tools(self, front: "Measured") -> tuple[str, ...]:
        """Return the names of the tools that differ or are on one side only."""
        names = dict.fromkeys((*self.tools, *front.tools))
        return tuple(name for name in names if self.tools.get(name) != front.tools.get(name))


def _name(text: str) -> str:
    return text.rpartition(" ")[0]


def tool_sha256(name: str, description: str, parameters: Mapping[str, Any]) -> str:
    """Return the hash of a tool as a model reads it, for `Measured.tools`."""
    text = compact([name, description, parameters])  # the order of keys reaches the model
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


class ApprovalPolicy(_Part):
    """Which tools may run without a question, what was measured, and at what risk.

    Attributes:
        risk: the largest share of wrong calls that was allowed.
        confidence: of the limits in `tools`.
        runs: the runs and folders of chats that were counted.
        measured: what they were measured with, by locale.
        tools: the rule of each tool; any other tool is asked.

    Example:
        ```
        policy = ApprovalPolicy.read("approvals.toml")
        gate = PolicyGate(policy, gate, measured)
        ```
    """

    risk: _Between
    confidence: _Between
    runs: Annotated[tuple[_Text, ...], Strict(False), Field(min_length=1)]
    measured: Annotated[dict[str, Measured], Field(min_length=1)]
    tools: dict[str, ToolRule]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for name, rule in self.tools.items():
            if rule.rule == "ask":
                continue
            if not any(name in measured.tools for measured in self.measured.values()):
                raise ValueError(f"tools.{name}: it is not among the measured tools")
            if rule.scenarios == 0 or rule.upper is None or rule.upper > self.risk:
                raise ValueError(
                    f"tools.{name}: the rule {rule.rule} needs scenarios, and an upper limit of at "
                    "most the risk"
                )
        return self

    @property
    def unasked(self) -> tuple[str, ...]:
        """The names of the tools that may run without a question, at least some of their calls."""
        return tuple(name for name, rule in self.tools.items() if rule.rule != "ask")

    @property
    def reads_logprobs(self) -> bool:
        """Whether a rule needs the log-probabilities of calls, else such calls are asked."""
        return any(rule.above is not None for rule in self.tools.values())

    def nearest(self, front: Measured) -> Measured:
        """Return what was measured in the locale that differs least from what is in front."""
        return min(self.measured.values(), key=lambda each: len(each.differences(front)))

    def rule(self, tool: str, front: Measured | None) -> ToolRule | None:
        """Return the rule of a tool; None if the tool is unknown, or something else is in front."""
        if front is None or self.nearest(front).differences(front):
            return None
        return self.tools.get(tool)

    @classmethod
    def read(cls, path: Path | str) -> "ApprovalPolicy":
        """Read a file that `lhkit approvals … --write` wrote.

        Raises:
            UsageError: it cannot be read, or anything in it is invalid, unknown or missing; the
                message names file and key.
        """
        path = Path(path)
        try:
            data = tomllib.loads(read_text_file(path))
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"The policy {path} cannot be read ({error}). Give the file that `lhkit approvals "
                "--write` wrote."
            ) from error
        except (ValueError, RecursionError) as error:  # also a key that is there twice
            raise UsageError(
                f"The policy {path} is not valid TOML: {error}. Write it again with `lhkit "
                "approvals --write`."
            ) from error
        schema = data.pop("schema", None)
        if type(schema) is not int or schema < 1:
            raise UsageError(
                f"{path} is no policy of approvals: schema = 1 is missing. Give the file that "
                "`lhkit approvals --write` wrote."
            )
        if schema > SCHEMA:
            raise UsageError(
                f"The policy {path} is of a newer version of lhkit (schema = {schema}). Update "
                "lhkit, or write it again."
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            lines = [f"{path}: {line}" for line in _issues(error)]
            raise UsageError("\n".join(lines)) from error

    def toml(self) -> str:
        """Return the text of the file."""
        return "\n".join(_toml_lines(self))

    def write(self, path: Path | str) -> None:
        """Write the file.

        Raises:
            OSError: it cannot be written.
        """
        write_atomically(Path(path), self.toml().encode())


def _issues(error: ValidationError) -> Iterator[str]:
    """Yield the errors of a policy with their keys."""
    for details in error.errors(include_url=False):
        place = ".".join(str(part) for part in details["loc"] if part != "[key]")
        message = _message(details)
        yield f"{place}: {message}" if place else message


def _message(details: ErrorDetails) -> str:
    match details["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            name, *_ = reversed(details["loc"])
            near = get_close_matches(str(name), _KEYS, n=1)
            return f"unknown field: did you mean {near[0]}?" if near else "unknown field"
        case "model_type" | "model_attributes_type":
            return "Input should be a valid dictionary"
        case _:
            return details["msg"].removeprefix("Value error, ")


_KEYS = sorted({*ApprovalPolicy.model_fields, *Measured.model_fields, *ToolRule.model_fields})


def _toml_lines(policy: ApprovalPolicy) -> Iterator[str]:
    for line in (
        "Which tools may run without a question, and what that was measured with.",
        "Written by `lhkit approvals`. It applies only where all of [measured] is the same.",
    ):
        yield f"# {line}"
    yield f"schema = {SCHEMA}"
    yield from _pairs(policy.model_dump(include={"risk", "confidence", "runs"}))
    for name, rule in policy.tools.items():
        yield from ("", f"[tools.{_quoted(name)}]", *_pairs(rule.model_dump(exclude_none=True)))
    for locale, measured in policy.measured.items():
        values = measured.model_dump()
        tools = values.pop("tools")
        yield from ("", f"[measured.{_quoted(locale)}]", *_pairs(values))
        yield from ("", f"[measured.{_quoted(locale)}.tools]", *_pairs(tools))
    yield ""


def _pairs(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        yield f"{_key(key)} = {_value(value)}"


def _key(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else _quoted(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    return repr(value)


def _quoted(text: str) -> str:
    """Return a TOML string, which is a JSON string, but for one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


Front: TypeAlias = Measured | Callable[[], Measured | None] | None
"""What is in front, or a function that returns it as it is now; None if it is unknown."""


@dataclass(slots=True)
class _Asking:
    is_yes: bool = False


class PolicyGate:
    """Lets calls run unasked as far as a policy allows, and has a gate ask about all others.

    After a decision of the gate other than a plain yes (a rejection, an edit, a failure, a
    time-out, a declined question in mid-call), every later call is asked: use one gate for one
    conversation.

    Args:
        policy: the policy.
        gate: asks. It also gets the questions that a tool has while it runs.
        measured: what is in front.
        ran: called with each request that runs unasked.

    Attributes:
        gate: as above; may be replaced between turns.
        is_suspended: every later call of the conversation is asked.
    """

    def __init__(
        self,
        policy: ApprovalPolicy,
        gate: ConfirmGate,
        measured: Front,
        *,
        ran: Callable[[ConfirmRequest], object] | None = None,
    ) -> None:
        self.gate = gate
        self.is_suspended = False
        self._policy = policy
        self._measured = measured
        self._ran = ran
        self._open = 0

    @property
    def is_person(self) -> bool:
        """Whether a person answers what is asked."""
        return is_person(self.gate)

    def begin(self) -> None:
        """Begin another conversation: the policy applies again."""
        self.is_suspended = False

    async def confirm(self, request: ConfirmRequest) -> Decision:
        """Return a yes of the policy, or the gate's decision."""
        if self._may_run(request):
            if self._ran is not None:
                self._ran(request)
            return Approve(how=QuestionOutcome.POLICY, binding=request.binding)
        with self._asking() as asking:
            decision = decision_of(await self.gate.confirm(request))
            is_ours = decision.binding in ("", request.binding)
            asking.is_yes = isinstance(decision, Approve) and is_ours
        return decision

    async def fill_in(self, request: ConfirmRequest, form: Form) -> FormAnswer:
        """Return the gate's answer to a question of a running tool."""
        with self._asking() as asking:
            answer = await GuardedGate(self.gate).fill_in(request, form)
            asking.is_yes = answer.action is FormAction.ACCEPT
        return answer

    @contextmanager
    def _asking(self) -> Iterator["_Asking"]:
        """Suspend the policy after the block unless the answer was yes, and during it."""
        asking = _Asking()
        self._open += 1
        try:
            yield asking
        finally:
            self._open -= 1
            self.is_suspended = self.is_suspended or not asking.is_yes

    def _may_run(self, request: ConfirmRequest) -> bool:
        if self.is_suspended or self._open or request.always_ask or request.error:
            return False
        front = self.front()
        rule = self._policy.rule(request.tool, front)
        if rule is None or front is None or not rule.may_run(request.logprob):
            return False
        try:
            sha256 = tool_sha256(request.tool, request.description, request.parameters)
        except NotJsonError:
            return False
        return front.tools.get(request.tool) == sha256

    def front(self) -> Measured | None:
        """Return what is in front now; None if it is unknown."""
        if not callable(self._measured):
            return self._measured
        try:
            return self._measured()
        except Exception:  # noqa: BLE001 - boundary: what is not known to be the same is asked
            _log.warning("the policy of approvals cannot be checked: asking", exc_info=True)
            return None

    def line(self, catalog: Catalog, *, file: str = "") -> str:
        """Return the line that says which tools run unasked here, or why none does.

        Args:
            catalog: texts.
            file: the file of the policy, if it is from one.
        """
        return policy_line(self._policy, self.front(), catalog, file=file)


def load_policy(approvals: Any) -> ApprovalPolicy | None:
    """Return a policy that is given as such or by its file; None for None.

    Raises:
        UsageError: it is neither, or the file is invalid.
    """
    if approvals is None or isinstance(approvals, ApprovalPolicy):
        return approvals
    if isinstance(approvals, str | Path):
        return ApprovalPolicy.read(approvals)
    raise UsageError(
        f"approvals={shown(approvals)} is invalid: give the file that `lhkit approvals --write` "
        "wrote, or an ApprovalPolicy."
    )


def policy_line(
    policy: ApprovalPolicy, front: Measured | None, catalog: Catalog, *, file: str = ""
) -> str:
    """Return the line that says which tools run unasked here, or why none does.

    Args:
        policy: the policy.
        front: what is in front; None if it is unknown.
        catalog: texts.
        file: the file of the policy, if it is from one.
    """
    text = catalog.text
    file = file or text("policy.name")
    if not policy.unasked:
        return text("policy.none", file=file)
    if front is None:
        return text("policy.unknown", file=file)
    nearest = policy.nearest(front)
    if parts := nearest.differences(front):
        shown = [
            text(f"policy.part.{part}", tools=_few(nearest.other_tools(front))) for part in parts
        ]
        return text("policy.differs", file=file, parts=", ".join(shown))
    tools = [
        name if rule.above is None else text("policy.above", tool=name, above=f"{rule.above:g}")
        for name, rule in policy.tools.items()
        if rule.rule != "ask" and name in front.tools
    ]
    return text(
        "policy.unasked", file=file, tools=", ".join(tools), risk=f"{100 * policy.risk:.3g}%"
    )


_SHOWN = 5


def _few(names: Iterable[str]) -> str:
    first = [*names]
    more = [f"… (+{len(first) - _SHOWN})"] if len(first) > _SHOWN else []
    return ", ".join([*first[:_SHOWN], *more])
