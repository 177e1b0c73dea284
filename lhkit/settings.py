"""Read the environment: settings, variables, and the clock in the user's time zone."""

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from platformdirs import user_cache_path, user_config_path, user_data_path
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lhkit.base.errors import UsageError
from lhkit.base.redaction import without_secrets
from lhkit.base.user_locale import language_of, user_locale
from lhkit.models.precision import Dtype
from lhkit.models.runtimes import VLLM, Runtime

__all__ = ["Settings", "load_settings"]

APP = "lhkit"
_PREFIX = "LHKIT_"


class Settings(BaseSettings):
    """Settings, each read from the environment variable `LHKIT_<FIELD>`.

    Command-line options override them.

    Attributes:
        base_url: address of a running model server.
        api_key: its API key.
        locale: language of messages; by default that of `user_locale`.
        timezone: IANA name; None is the zone of this machine.
        dtype: number type of models that lhkit serves; None takes the processor's fastest.
        runtime: engine of embedded models that lhkit serves.
        cache_dir: folder for weights and logs.
        data_dir: folder for the chat's database.
        config_dir: folder for the user's consents.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True)

    base_url: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    locale: str = Field(default_factory=user_locale)
    timezone: str | None = None
    dtype: Dtype | None = None
    runtime: Runtime = VLLM
    cache_dir: Path = Field(default_factory=lambda: user_cache_path(APP))
    data_dir: Path = Field(default_factory=lambda: user_data_path(APP))
    config_dir: Path = Field(default_factory=lambda: user_config_path(APP))

    @field_validator("locale")
    @classmethod
    def _language(cls, name: str) -> str:
        return language_of(name)  # which commands refuse if there are no texts in it

    @field_validator("timezone")
    @classmethod
    def _require_timezone(cls, name: str | None) -> str | None:
        try:
            ZoneInfo("UTC" if name is None else name)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{name!r} is not an IANA time zone such as Asia/Seoul") from error
        return name

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield what `repr` shows, without the password in an address."""
        for name, value in super().__repr_args__():
            yield name, without_secrets(value) if name == "base_url" and value else value

    @property
    def now(self) -> Callable[[], datetime]:
        """The current time in the configured time zone or that of this machine, as a function."""
        if self.timezone is None:
            return lambda: datetime.now().astimezone()
        zone = ZoneInfo(self.timezone)
        return lambda: datetime.now(zone)


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        UsageError: a variable has an invalid value, or begins with `LHKIT_` and is not a setting;
            the message names it.
    """
    _refuse_unknown(os.environ)
    try:
        return Settings()
    except ValidationError as error:
        detail = error.errors()[0]
        name = "_".join(str(part) for part in detail["loc"]).upper()
        reason = detail["msg"].removeprefix("Value error, ")
        raise UsageError(f"Environment variable {_PREFIX}{name} is invalid: {reason}.") from error


def current_time() -> datetime:
    """Return the current time, as `Settings.now`.

    Raises:
        UsageError: as `load_settings`.
    """
    own = ((k, v) for k, v in os.environ.items() if k[: len(_PREFIX)].upper() == _PREFIX)
    return _clock(tuple(sorted(own)))()


@lru_cache(maxsize=1)  # each conversation asks for the day
def _clock(_variables: tuple[tuple[str, str], ...]) -> Callable[[], datetime]:
    return load_settings().now


def read_variable(name: str, default: str | None = None) -> str:
    """Return an environment variable to which a user's file refers.

    Args:
        name: the variable.
        default: value if it is not set.

    Raises:
        UsageError: it is not set, and there is no default.
    """
    value = os.environ.get(name, default)
    if value is None:
        raise UsageError(
            f"The environment variable {name} is not set. Set it, or give a default in the file: "
            f"${{{name}:-…}}."
        )
    return value


def _refuse_unknown(variables: Iterable[str]) -> None:
    """Raise a `UsageError` for a variable with lhkit's prefix that is not a setting."""
    known = sorted(field.upper() for field in Settings.model_fields)
    for name in sorted(variables):
        prefix, rest = name[: len(_PREFIX)].upper(), name[len(_PREFIX) :].upper()
        if prefix != _PREFIX or rest in known:
            continue
        near = get_close_matches(rest, known, n=1)
        hint = "did you mean {}?" if near else "choose one of {}."
        names = ", ".join(_PREFIX + candidate for candidate in near or known)
        raise UsageError(f"Unknown environment variable {name}: {hint.format(names)}")
