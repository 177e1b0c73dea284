"""The settings with what `--runtime` and `--dtype` ask for."""

from lhkit.errors import UsageError
from lhkit.precision import Dtype
from lhkit.settings import LLAMA_CPP, Runtime, Settings


def served_by(
    settings: Settings, runtime: Runtime | None, dtype: Dtype | None, *addresses: str | None
) -> Settings:
    """Return the settings with runtime and dtype as the command line names them.

    Raises:
        UsageError: one is given for servers that run at `addresses`, or a dtype for a runtime
            whose files have their own.
    """
    given = {"runtime": runtime, "dtype": dtype}
    changes = {name: value for name, value in given.items() if value is not None}
    if changes and (address := next(filter(None, addresses), None)):
        raise UsageError(
            f"--{next(iter(changes))} is for a model that lhkit serves itself, and {address} "
            "serves already: leave one of them out"
        )
    settings = settings.model_copy(update=changes)
    if dtype is not None and settings.runtime == LLAMA_CPP:
        raise UsageError(
            f"--dtype is for vLLM: what {LLAMA_CPP} serves is quantised as its file is; leave it "
            "out"
        )
    return settings
