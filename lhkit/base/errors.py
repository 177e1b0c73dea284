"""The exceptions of lhkit.

Mistakes of the *model* are not exceptions but a `ToolErr` (see `lhkit.conversation.tool_results`).

    LhkitError
    ├── UsageError                 invalid input of the caller
    │   ├── AdapterError           an adapter is missing, broken, or for another base model
    │   ├── CassetteError          a cassette is broken, or has no answer to a request
    │   ├── NotIsolatedError       unapproved calls would reach real data
    │   ├── RegistrationError      a tool definition is invalid
    │   └── ScenarioError          a scenario file is invalid (names file, line, field)
    ├── SetupError                 something on this machine is missing or broken
    │   ├── MissingPackageError
    │   ├── WeightsError
    │   ├── McpServerError
    │   ├── ServerStartError
    │   └── StoreError
    ├── RunError                   a run folder cannot be used
    │   └── MissingRunError        no such run or sample; a UsageError, too
    └── ModelError                 the model server failed: `invalid` in a run, `error` in a chat
        ├── ServerUnreachableError
        ├── UnknownModelError
        ├── ContextTooLongError
        ├── RequestRefusedError
        ├── ServerOverloadedError
        ├── ServerFailedError
        ├── StreamBrokenError
        └── StreamStalledError

Each message names the cause and the next step.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import ClassVar

_PYDANTIC_LINK = re.compile(r"\s*For further information visit https://errors\.pydantic\.dev/\S+")


def error_text(error: BaseException) -> str:
    """Return the message of any exception, without pydantic's links to its own documentation."""
    return _PYDANTIC_LINK.sub("", str(error))


class LhkitError(Exception):
    """Base class of all exceptions of lhkit."""


class UsageError(LhkitError):
    """The caller's input is invalid."""


class AdapterError(UsageError):
    """An adapter cannot be used; the message names it and the reason."""


class CassetteError(UsageError):
    """A cassette cannot be used, or has no answer to a request; the message shows what changed."""


class NotIsolatedError(UsageError):
    """Calls without a person's approval would reach sessions that share real data."""


class RegistrationError(UsageError):
    """A tool definition is invalid; the message names the tool and the issue."""


class ScenarioError(UsageError):
    """A scenario file is invalid; the message names file, line and field."""


class SetupError(LhkitError):
    """Something that lhkit needs is missing or broken on this machine."""


class MissingPackageError(SetupError):
    """An optional package is not installed."""

    @classmethod
    def of_extra(cls, package: str, extra: str, *, otherwise: str = "") -> "MissingPackageError":
        """Return the error for a package of one of lhkit's extras.

        Args:
            package: the missing package, such as `altair`.
            extra: the extra that installs it, such as `eval`.
            otherwise: what can be done without it.
        """
        install = f"Install it with `pip install 'lhkit[{extra}]'`"
        return cls(f"{package} is not installed. {install}{otherwise and f', or {otherwise}'}.")


@contextmanager
def importing(extra: str) -> Iterator[None]:
    """Import packages of one of lhkit's extras; a missing one becomes a `MissingPackageError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise MissingPackageError.of_extra(package, extra) from error


def require_packages(extra: str, *packages: str) -> None:
    """Check that packages of one of lhkit's extras are installed, without importing them.

    Raises:
        MissingPackageError: one is not installed.
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackageError.of_extra(package, extra)


class WeightsError(SetupError):
    """The embedded weights cannot be fetched, verified or converted."""


class ServerStartError(SetupError):
    """The local model server did not start."""


class McpServerError(SetupError):
    """An MCP server did not start, has ended, or sent an invalid answer."""


class StoreError(SetupError):
    """The database file cannot be used."""


class RunError(LhkitError):
    """A run folder cannot be used."""


class MissingRunError(RunError, UsageError):
    """The caller named a run or a sample that does not exist."""


class ModelError(LhkitError):
    """The model server failed; a wrong answer of the model is never an exception.

    `key` is the key in `lhkit/base/locales/*.toml` of the sentence for the user.
    """

    key: ClassVar[str] = "model_error.other"


class ServerUnreachableError(ModelError):
    """No server answers at the address."""

    key = "model_error.unreachable"


class UnknownModelError(ModelError):
    """The server does not serve a model of that name."""

    key = "model_error.unknown_model"


class ContextTooLongError(ModelError):
    """The conversation no longer fits into the model's context."""

    key = "model_error.context_too_long"


class RequestRefusedError(ModelError):
    """The server refused the request (HTTP 4xx).

    `field` names a request field that the server does not support, if that is the reason.
    """

    key = "model_error.refused"
    field = ""


class ServerOverloadedError(ModelError):
    """The server is overloaded (HTTP 429 or 503)."""

    key = "model_error.overloaded"


class ServerFailedError(ModelError):
    """The server had an internal error (HTTP 5xx or an error event in the stream)."""

    key = "model_error.failed"


class StreamBrokenError(ModelError):
    """The stream ended early, or is not a stream of completions."""

    key = "model_error.broken_stream"


class StreamStalledError(ModelError):
    """The stream sent nothing for longer than the idle limit."""

    key = "model_error.stalled"
