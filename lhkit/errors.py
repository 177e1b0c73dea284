"""The exceptions of lhkit: misuse, a broken set-up, or a world that failed.

What the *model* can mend is never an exception: it is a `ToolErr` (see `lhkit.tool_results`).

    LhkitError
    ├── UsageError                 the caller asked for something that cannot be
    │   ├── AdapterError           an adapter is missing, broken, or for another base model
    │   ├── CassetteError          a cassette is broken, or has no answer to a request
    │   ├── NotIsolatedError       calls that no person approves would reach real data
    │   ├── RegistrationError      a tool definition is wrong
    │   └── ScenarioError          a scenario file is wrong (names file, line, field)
    ├── SetupError                 this machine lacks or broke something
    │   ├── MissingPackageError
    │   ├── WeightsError
    │   ├── McpServerError
    │   ├── ServerStartError
    │   └── StoreError
    ├── RunError                   a run folder cannot be used
    │   └── MissingRunError        no such run or sample; a UsageError, too
    └── ModelError                 the served model failed us: `invalid` in a run, `error` in a chat
        ├── ServerUnreachableError
        ├── UnknownModelError
        ├── ContextTooLongError
        ├── RequestRefusedError
        ├── ServerOverloadedError
        ├── ServerFailedError
        ├── StreamBrokenError
        └── StreamStalledError

Each message is one sentence that names the thing and the next step.
"""

from typing import ClassVar


class LhkitError(Exception):
    """Root of every exception that lhkit raises on purpose."""


class UsageError(LhkitError):
    """The caller asked for something that cannot be."""


class AdapterError(UsageError):
    """An adapter cannot be used; names it and why."""


class CassetteError(UsageError):
    """A cassette cannot be used, or has no answer to a request; the message shows what changed."""


class NotIsolatedError(UsageError):
    """Calls that no person approves would reach a toolset whose sessions share real data."""


class RegistrationError(UsageError):
    """A tool definition is wrong; the message names the tool and the fault."""


class ScenarioError(UsageError):
    """A scenario file is wrong; the message names file, line and field."""


class SetupError(LhkitError):
    """This machine lacks or broke something that lhkit needs."""


class MissingPackageError(SetupError):
    """An optional package is not installed."""


class WeightsError(SetupError):
    """The embedded weights cannot be fetched, verified or converted."""


class ServerStartError(SetupError):
    """The local vLLM server did not come up."""


class McpServerError(SetupError):
    """An MCP server did not start, is gone, or says what is no answer."""


class StoreError(SetupError):
    """The database file cannot be used."""


class RunError(LhkitError):
    """A run folder cannot be used."""


class MissingRunError(RunError, UsageError):
    """The caller named a run or a sample that is not there."""


class ModelError(LhkitError):
    """The served model failed us: never the model's mistake, never a wrong answer.

    `key` names the sentence in `lhkit/locales/*.toml` that a user reads.
    """

    key: ClassVar[str] = "model_error.other"


class ServerUnreachableError(ModelError):
    """Nothing answers at the address."""

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
    """The server asked us to come back later (HTTP 429 or 503)."""

    key = "model_error.overloaded"


class ServerFailedError(ModelError):
    """The server failed inside (HTTP 5xx or an error event in the stream)."""

    key = "model_error.failed"


class StreamBrokenError(ModelError):
    """The stream ended early or was not a stream of completions."""

    key = "model_error.broken_stream"


class StreamStalledError(ModelError):
    """The stream sent nothing for longer than the idle limit."""

    key = "model_error.stalled"
