"""`lhkit.toml`: what the commands use in a project where no option says otherwise."""

import os
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic import ValidationError as InvalidFields

from lhkit.base.errors import UsageError
from lhkit.base.files import read_text_file
from lhkit.base.locales import Catalog, available_locales, load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.base.project_file import find_project_file
from lhkit.base.redaction import without_secrets
from lhkit.base.user_locale import language_of
from lhkit.harness.running.run_options import MAX_CONCURRENCY
from lhkit.harness.scenarios.issues import format_path, validation_issues
from lhkit.harness.scenarios.scenario import NonBlank
from lhkit.harness.scenarios.user import User
from lhkit.models.names import DIALECT_NAMES, EMBEDDED_NAMES, REFERENCE_NAMES
from lhkit.settings import Settings


def _known_locale(name: str) -> str:
    if (language := language_of(name)) not in available_locales():
        raise ValueError(f"must be one of {', '.join(available_locales())}")
    return language


def _known_dialect(name: str) -> str:
    if name not in DIALECT_NAMES:
        raise ValueError(f"must be one of {', '.join(sorted(DIALECT_NAMES))}")
    return name


def _valid_address(address: str) -> str:
    from lhkit.models.address import require_address  # yarl: not for every project

    try:
        require_address(address)
    except UsageError as error:
        raise ValueError(str(error).removesuffix(".")) from error
    return address


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ProjectKeys(BaseModel):
    """The keys of a `lhkit.toml`; paths are relative to the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    toolset: NonBlank | None = Field(default=None, description="The tools, as for `--toolset`.")
    scenarios: (
        Annotated[
            tuple[NonBlank, ...], BeforeValidator(_as_list), Field(min_length=1, strict=False)
        ]
        | None
    ) = Field(
        default=None,
        description="Scenario files, folders and patterns (`tests/*.yaml`). Default with "
        "`toolset`: the folder of this file.",
    )
    model: NonBlank | None = Field(default=None, description="The model, as for `--model`.")
    base_url: Annotated[NonBlank, AfterValidator(_valid_address)] | None = Field(
        default=None, description="Address of its server, as for `--base-url`."
    )
    dialect: Annotated[NonBlank, AfterValidator(_known_dialect)] | None = Field(
        default=None, description="Its format of tool calls, as for `--dialect`."
    )
    locale: Annotated[NonBlank, AfterValidator(_known_locale)] | None = Field(
        default=None, description="Language of output, and of the tools in a chat."
    )
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = Field(
        default=None, description="Conversations at once, as for `--concurrency`."
    )
    user: User | None = Field(default=None, description="The simulated user, as for `--user`.")
    scores: (
        Annotated[
            tuple[NonBlank, ...], BeforeValidator(_as_list), Field(min_length=1, strict=False)
        ]
        | None
    ) = Field(default=None, description="Your own scores, besides those of `--score`.")


KEYS = frozenset(ProjectKeys.model_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A read `lhkit.toml`.

    Attributes:
        file: the file, relative to the working directory.
        values: the values by key, with paths relative to the working directory.
    """

    file: Path
    values: Mapping[str, Any] = field(default_factory=dict)

    def defaults(
        self, keys: Collection[str], given: Mapping[str, Any], settings: Settings
    ) -> dict[str, Any]:
        """Return the values of `keys` that neither an option nor an `LHKIT_` variable gives.

        `base_url` and `dialect` belong to the project's model: a model that lhkit has itself, such
        as gold, is asked without them.
        """
        own = {"base_url", "dialect"} if is_own_model(given.get("model")) else set()
        left_out = given.keys() | own | ({"locale", "base_url"} & settings.model_fields_set)
        return {key: self.values[key] for key in keys if key in self.values.keys() - left_out}

    def absolute(self) -> "Project":
        """Return the project with absolute paths, for another place than the working directory."""
        return read_project(self.file, folder=self.file.resolve().parent)

    def line(self, taken: Collection[str], locale: str) -> str:
        """Return what is taken from the file, as one line; empty if nothing is."""
        text = load_catalog(locale).text
        shown = [
            f"{text(f'project.key.{key}')} "
            f"{' '.join(map(str, value)) if isinstance(value, tuple) else value}"
            for key, value in self.values.items()
            if key in taken
        ]
        return without_secrets(f"{self.file}: {', '.join(shown)}") if shown else ""


def find_project(*starts: Path) -> Project | None:
    """Return the first project of some files or folders; None if there is none.

    Raises:
        UsageError: its file is invalid.
    """
    for start in starts:
        folder = (start if start.is_dir() else start.parent).resolve()
        if file := find_project_file(folder):
            return read_project(file)
    return None


def read_project(file: Path, *, folder: Path | None = None) -> Project:
    """Read a `lhkit.toml`.

    Args:
        file: the file.
        folder: stands for its folder in paths; by default as seen from the working directory.

    Raises:
        UsageError: it is invalid; the message has a line for each key.
    """
    shown = Path(os.path.relpath(file))
    keys = _read_keys(file, shown)
    folder = folder or shown.parent
    values = {key: value for key, value in keys if value is not None}
    if keys.toolset is not None:
        from lhkit.toolset import reference_from  # not for the help of a command

        values["toolset"] = reference_from(folder, keys.toolset)
        values.setdefault("scenarios", ["."])
        own = str(file.resolve().parent)
        if own not in sys.path:  # last, for `package.module:NAME`
            sys.path.append(own)
    if "scenarios" in values:
        values["scenarios"] = tuple(folder / path for path in values["scenarios"])
    if keys.scores is not None:
        from lhkit.toolset import reference_from  # as above

        values["scores"] = tuple(reference_from(folder, score) for score in keys.scores)
    ordered = {key: values[key] for key in ProjectKeys.model_fields if key in values}
    return Project(file=shown, values=ordered)


def _read_keys(file: Path, shown: Path) -> ProjectKeys:
    try:
        data = tomllib.loads(read_text_file(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown} cannot be read ({error}).") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is not valid TOML: {error}.") from error
    known = list(ProjectKeys.model_fields)
    lines = []
    for key in data.keys() - set(known):
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}."
        lines.append(f"{shown}: unknown key {key!r}: {hint}")
    given = {key: value for key, value in data.items() if key in known}
    try:
        keys = ProjectKeys.model_validate(given)
    except InvalidFields as error:
        issues = validation_issues(error, TypeAdapter(ProjectKeys), given)
        lines += (f"{shown}: {format_path(issue.path)}: {issue.message}" for issue in issues)
    if lines:
        raise UsageError("\n".join(sorted(lines)))
    return keys


def with_project(
    options_type: type[BaseModel], given: Mapping[str, Any], settings: Settings
) -> tuple[dict[str, Any], Settings, str]:
    """Complete the options of a command and the settings with those of the project.

    Args:
        options_type: the options of the command; its `project_keys` are taken, by default the keys
            that are its options, and `locale`.
        given: the options that the user gave.
        settings: from the environment.

    Returns:
        The options, the settings, and a line that says what was taken; empty without any.

    Raises:
        UsageError: the project's file is invalid.
    """
    keys = _keys_of(options_type, given)
    places = (*given.get("paths", ()), *((given["suite"],) if "suite" in given else ()))
    project = find_project(*places, Path()) if keys else None
    if project is None:
        return dict(given), settings, ""
    named = {"scenarios" if name == "paths" else name: value for name, value in given.items()}
    if isinstance(named.get("locale"), tuple):  # which selects scenarios
        del named["locale"]
    own_scores = named.pop("scores", ())  # besides those of the project
    values = project.defaults(keys, named, settings)
    if "repeats" not in options_type.model_fields and is_scripted_model(values.get("model")):
        del values["model"]  # nobody to talk to
    changes = {str(name): values.pop(name) for name in ("locale", "base_url") if name in values}
    settings = settings.model_copy(update=changes)
    own = named.get("locale")
    spoken = own if own in available_locales() else settings.locale
    line = project.line(values.keys() | changes.keys(), spoken)
    if "scenarios" in values:
        values["paths"] = values.pop("scenarios")
    scores = (*values.pop("scores", ()), *own_scores)
    return {**values, **given, **({"scores": scores} if scores else {})}, settings, line


def shipped_lines(paths: Collection[Path], toolset: str, catalog: Catalog) -> Iterator[str]:
    """Yield that the shipped scenarios are taken, if the user chose neither paths nor tools."""
    if not paths and toolset == DEFAULT_TOOLSET:
        yield catalog.text("project.shipped")


def language_lines(locales: Sequence[str], catalog: Catalog) -> Iterator[str]:
    """Yield how many shipped scenarios, by their locales, are not in the user's language."""
    others = [locale for locale in locales if locale != catalog.locale]
    if others:
        names = ", ".join(sorted(set(others)))
        values = {"count": len(others), "total": len(locales), "names": names}
        yield catalog.text("project.other_language", **values, locale=catalog.locale)


def _keys_of(options_type: type[BaseModel], given: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys that a command takes from the project."""
    own = getattr(options_type, "project_keys", None)
    fields = options_type.model_fields.keys()
    named = {name: name for name in fields if name != "scenarios"} | {"paths": "scenarios"}
    keys = {key for name, key in named.items() if name in fields} & KEYS | {"locale"}
    if given.get("split") is not None:  # chooses the shipped scenarios, and their tools
        keys -= {"toolset", "scenarios", "scores"}
    if "scenario" in fields and "scenario" not in given:  # `lhkit prompt` without a message
        keys -= {"scenarios"}
    return frozenset(keys if own is None else own)


def is_own_model(name: str | None) -> bool:
    """Return True for the name of an embedded or scripted model."""
    return name in EMBEDDED_NAMES or is_scripted_model(name)


def is_scripted_model(name: str | None) -> bool:
    """Return True for `gold` and `silent`."""
    return name in REFERENCE_NAMES
