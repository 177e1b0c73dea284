"""What comes from outside: environment variables, folders, the wall clock. Read here only."""

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psutil
from platformdirs import user_cache_path, user_config_path, user_data_path
from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lhkit.errors import UsageError
from lhkit.locales import DEFAULT_LOCALE
from lhkit.precision import Dtype
from lhkit.runtimes import VLLM, Runtime

_Options = TypeVar("_Options", bound=BaseModel)

APP = "lhkit"
_PREFIX = "LHKIT_"

DEFAULT_TOOLSET = "life-helper"
"""The reference that is meant where none is given."""

REPLY_TOKENS: Final = 128
"""The most tokens of one message of a model that is scored, where nothing else is asked for."""


class Settings(BaseSettings):
    """Frozen settings. Each field is read from `LHKIT_<FIELD>`; command-line options win.

    The prefix is kept for settings: `load_settings` refuses any other variable that begins with it.
    `base_url` and `api_key` point to a server that is already running; `cache_dir` holds weights
    and logs, `data_dir` the chat's database, `config_dir` what the user agreed to. `timezone` is an
    IANA name. `dtype` is what models compute in that lhkit serves itself; None: what this
    processor is quick in. `runtime` serves an embedded model that lhkit starts itself.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    base_url: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    locale: str = DEFAULT_LOCALE
    timezone: str = "Asia/Seoul"
    dtype: Dtype | None = None
    runtime: Runtime = VLLM
    cache_dir: Path = Field(default_factory=lambda: user_cache_path(APP))
    data_dir: Path = Field(default_factory=lambda: user_data_path(APP))
    config_dir: Path = Field(default_factory=lambda: user_config_path(APP))

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{name!r} is no IANA time zone such as Asia/Seoul") from error
        return name

    @property
    def now(self) -> Callable[[], datetime]:
        """The wall clock, in the configured time zone."""
        zone = ZoneInfo(self.timezone)
        return lambda: datetime.now(zone)


def load_settings() -> Settings:
    """Read the environment.

    Raises:
        UsageError: a variable holds something impossible, or begins with `LHKIT_` and is no
            setting (it would be ignored); the message names it.
    """
    _refuse_unknown(os.environ)
    try:
        return Settings()
    except ValidationError as error:
        fault = error.errors()[0]
        name = "_".join(str(part) for part in fault["loc"]).upper()
        what = fault["msg"].removeprefix("Value error, ")
        raise UsageError(f"environment variable {_PREFIX}{name}: {what}") from error


def checked(options: type[_Options], **values: Any) -> _Options:
    """Return options that are not read from a file.

    Raises:
        UsageError: a value is not valid; the message names the option.
    """
    try:
        return options(**values)
    except ValidationError as error:
        raise UsageError(_invalid_option(error)) from error


def _invalid_option(error: ValidationError) -> str:
    """Return the sentence about the first option that is not valid."""
    fault = error.errors(include_url=False)[0]
    name, value = str(fault["loc"][0]), fault["input"]
    context: Mapping[str, Any] = fault.get("ctx", {})
    match fault["type"]:
        case "literal_error":
            words = str(context["expected"]).replace(" or ", ", ").replace("'", "")
            return f"no {name} {value!r}: choose one of {words}"
        case "greater_than_equal":
            return f"{name}={value}: give at least {context['ge']:g}"
        case "less_than_equal":
            return f"{name}={value}: give at most {context['le']:g}"
        case _:
            return f"{name}={value!r}: {fault['msg']}"


def variable(name: str, otherwise: str | None = None) -> str:
    """Return an environment variable that a file of the user's names.

    Args:
        name: the variable.
        otherwise: what stands in for it where it is not set, if the file says so.

    Raises:
        UsageError: it is not set.
    """
    found = os.environ.get(name, otherwise)
    if found is None:
        raise UsageError(
            f"the environment variable {name} is not set, and a file of yours names it: set it, or "
            f"write ${{{name}:-…}} for what is to be taken without it"
        )
    return found


def _refuse_unknown(variables: Iterable[str]) -> None:
    """Raise a `UsageError` for a variable with lhkit's prefix that no setting is read from."""
    known = sorted(field.upper() for field in Settings.model_fields)
    for name in sorted(variables):
        prefix, rest = name[: len(_PREFIX)].upper(), name[len(_PREFIX) :].upper()
        if prefix != _PREFIX or rest in known:
            continue
        near = get_close_matches(rest, known, n=1)
        hint = "did you mean {}?" if near else "choose one of {}"
        told = hint.format(", ".join(_PREFIX + each for each in near or known))
        raise UsageError(f"environment variable {name} is no setting of {APP}: {told}")


def process_age_s() -> float:
    """Return how long this process has been there, imports included, in seconds."""
    begun_s = psutil.Process().create_time()
    if hasattr(time, "CLOCK_BOOTTIME"):  # psutil's boot time is in whole seconds: it cancels out
        return time.clock_gettime(time.CLOCK_BOOTTIME) - (begun_s - psutil.boot_time())
    return datetime.now(UTC).timestamp() - begun_s


def hardware() -> dict[str, str | int]:
    """Return what a manifest says of the machine: system, processor, cores."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count() or 0,
    }


def quiet_ray() -> None:
    """Have Ray report to nobody and leave the graphics cards that a process sees as they are.

    Ray reads this from the environment only; what somebody has set stays.
    """
    for name, value in (
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),
    ):
        os.environ.setdefault(name, value)
