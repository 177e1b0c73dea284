"""Suite files (`evals/*.toml`): scenarios, arms and thresholds.

Each combination of models, runtimes, dialects, constraints, prompts, descriptions, stress and
users is one arm. They are run by `cli.matrix`.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, product
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.harness.running.run_options import RunOptions, Text
from lhkit.harness.scenarios.issues import format_path, validation_issues
from lhkit.harness.scenarios.user import User
from lhkit.models.decoding import Constraint
from lhkit.models.runtimes import Runtime
from lhkit.toolset import reference_from

SPLITS = ("dev", "test", "all")
"""Names of shipped scenarios."""

DEFAULT_PROMPT = "default"
"""The name of the prompt of the suite's `instructions`, else of the assistant's own."""

DEFAULT_DESCRIPTIONS = "default"
"""The name of the descriptions of the suite's `tool_descriptions`, else of the tools' own."""

_DEFAULT_MODEL = "gemma"


def _require_texts(wording: Mapping[str, Any]) -> Mapping[str, Any]:
    if not wording:
        raise ValueError('has no texts: write a tool and its description, `find_item = "…"`')
    return wording


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServedModel(_Table):
    """A model; without `base_url` an embedded one, or `gold` or `silent`."""

    name: str | None = None
    base_url: str | None = None


class PromptFile(_Table):
    """Instructions in a file, relative to the suite."""

    file: FilePath


Wording: TypeAlias = Annotated[
    Mapping[str, Text | Mapping[str, Text]], AfterValidator(_require_texts)
]
"""Descriptions by tool or parameter, as in `RunOptions.tool_descriptions`."""


class Arms(_Table):
    """The axes; every combination is run. Names consist of the axes with several values.

    The default of an axis is the suite's own option: that of `users` is its `user`. The default of
    `descriptions` is the tools' own and all that the suite has.
    """

    models: Annotated[tuple[str | ServedModel, ...], Field(min_length=1)] | None = None
    runtimes: Annotated[tuple[Runtime, ...], Field(min_length=1)] | None = None
    dialects: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    constraints: Annotated[tuple[Constraint, ...], Field(min_length=1)] | None = None
    prompts: Annotated[tuple[str, ...], Field(min_length=1)] = (DEFAULT_PROMPT,)
    descriptions: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    stress: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    users: Annotated[tuple[User, ...], Field(min_length=1)] | None = None


class Suite(RunOptions):
    """One suite: the options of its arms, and the axes that vary some of them.

    Files in `scenarios`, `toolset`, `approvals` and `scores` are relative to the suite's folder.
    `scenarios` may also be a single file, folder or pattern.
    """

    scenarios: Literal["dev", "test", "all"] | tuple[FilePath, ...] = "dev"
    fail_under: Annotated[float, Field(ge=0, le=100)] | None = None
    max_violations: Annotated[int, Field(ge=0, strict=True)] | None = None
    approvals: str | None = None
    scores: tuple[str, ...] = ()
    arms: Arms = Arms()
    halves_seed: Annotated[int, Field(ge=0, strict=True)] = 0
    prompts: Mapping[str, Mapping[str, str | PromptFile]] = Field(default_factory=dict)
    descriptions: Mapping[str, Wording] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One combination: its options, and the name of its folder.

    `setting` are its values on the axes other than `descriptions`: arms that share them differ in
    nothing but the wording of the tools.
    """

    name: str
    options: RunOptions
    setting: tuple[object, ...] = ()


def load_suite(path: FilePath) -> Suite:
    """Read a suite file.

    Raises:
        UsageError: the file cannot be read, is not TOML, or has invalid fields; the message has
            one line for each issue.
    """
    try:
        data = tomllib.loads(read_text_file(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}). Give a suite such as evals/smoke.toml."
        ) from error
    except (ValueError, RecursionError) as error:  # also numbers of more digits than Python reads
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    if not data:  # every field has a default, but an empty file is a mistake
        raise UsageError(f"{path} is empty. Give a suite such as evals/smoke.toml.")
    if _is_path(data.get("scenarios"), path.parent):
        data["scenarios"] = [data["scenarios"]]
    try:
        suite = Suite.model_validate(data)
    except ValidationError as error:
        issues = validation_issues(error, TypeAdapter(Suite), data)
        lines = [f"{path}: {format_path(issue.path)}: {issue.message}" for issue in issues]
        raise UsageError("\n".join(lines)) from error
    _require_defined(path, "prompts", suite.arms.prompts, [DEFAULT_PROMPT, *suite.prompts])
    wordings = [DEFAULT_DESCRIPTIONS, *suite.descriptions]
    _require_defined(path, "descriptions", suite.arms.descriptions or (), wordings)
    return suite


def _require_defined(path: FilePath, axis: str, names: Iterable[str], known: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"{path}: arms.{axis}: there is no [{axis}.{unknown[0]}]. Use one of "
            f"{', '.join(dict.fromkeys(known))}, or write that table."
        )


def _is_path(scenarios: object, folder: FilePath) -> bool:
    """Return whether a text names a file, a folder or a pattern, and no shipped scenarios."""
    if not isinstance(scenarios, str) or scenarios in SPLITS or not scenarios.strip():
        return False
    return re.search(r"[./\\*?]", scenarios) is not None or (folder / scenarios).exists()


def expand_arms(suite: Suite, folder: FilePath) -> tuple[Arm, ...]:
    """Return every combination, in the order of the file.

    Args:
        suite: the suite.
        folder: the folder of prompt files.

    Raises:
        UsageError: a prompt file cannot be read, or two arms have the same name.
    """
    axes = suite.arms
    own = suite.model or (None if suite.base_url else _DEFAULT_MODEL)
    models = axes.models or (ServedModel(name=own),)
    rest = (
        axes.runtimes or (suite.runtime,),
        axes.dialects or (suite.dialect,),
        axes.constraints or (suite.constraint,),
        axes.prompts,
        axes.descriptions or tuple(dict.fromkeys([DEFAULT_DESCRIPTIONS, *suite.descriptions])),
        axes.stress or (suite.stress,),
        axes.users or (suite.user,),
    )
    is_named = [len(axis) > 1 for axis in (models, *rest)]
    if not any(is_named):
        is_named[0] = True
    toolset = reference_from(folder, suite.toolset)
    scores = [reference_from(folder, score) for score in suite.scores]
    arms: dict[str, Arm] = {}
    for combination in product(models, *rest):
        model, runtime, dialect, constraint, prompt, wording, stress, user = combination
        served = ServedModel(name=model) if isinstance(model, str) else model
        parts = (
            served.name or served.base_url or "served",
            runtime or "",
            dialect or "",
            constraint,
            prompt,
            wording,
            stress,
            user,
        )
        name = "-".join(part or "plain" for part in compress(parts, is_named))
        name = re.sub(r"[^A-Za-z0-9._=,-]+", "-", name).strip("-.")
        if name in arms:
            raise UsageError(f"Two arms have the name {name!r}. List each value of an axis once.")
        texts = {loc: _text(text, folder) for loc, text in suite.prompts.get(prompt, {}).items()}
        options = suite.derive(
            toolset=toolset,
            scores=scores,
            model=served.name,
            base_url=suite.base_url if served.base_url is None else served.base_url,
            runtime=runtime,
            dialect=dialect,
            constraint=constraint,
            instructions={**suite.instructions, **texts},
            tool_descriptions={**suite.tool_descriptions, **suite.descriptions.get(wording, {})},
            stress=stress,
            user=user,
            approvals=None if suite.approvals is None else folder / suite.approvals,
        )
        setting = (*combination[:5], *combination[6:])
        arms[name] = Arm(name=name, options=options, setting=setting)
    return tuple(arms.values())


def arms_by_setting(arms: Iterable[Arm]) -> list[list[str]]:
    """Return the names of the arms that differ in nothing but their descriptions, in groups."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for arm in arms:
        groups.setdefault(arm.setting, []).append(arm.name)
    return list(groups.values())


def _text(text: str | PromptFile, folder: FilePath) -> str:
    if isinstance(text, str):
        return text
    try:
        return read_text_file(folder / text.file).rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The prompt file {folder / text.file} cannot be read ({error})."
        ) from error
