"""The settings with what `--runtime` and `--dtype` ask for."""

from lhkit.errors import UsageError
from lhkit.precision import dtype_of
from lhkit.runtimes import LLAMA_CPP, runtime_of
from lhkit.settings import Settings


def in_dtype(settings: Settings, dtype: str | None, *addresses: str | None) -> Settings:
    """Return the settings with the type of number that the command line names, if it does.

    Raises:
        UsageError: there is no such type, or it is asked of servers that run at `addresses`.
    """
    if dtype is None:
        return settings
    _require_own("--dtype", addresses)
    return settings.model_copy(update={"dtype": dtype_of(dtype)})


def served_by(
    settings: Settings, runtime: str | None, dtype: str | None, *addresses: str | None
) -> Settings:
    """Return the settings with runtime and type of number as the command line names them.

    Raises:
        UsageError: there is no such runtime or type, one is asked of servers that run at
            `addresses`, or a type where the file has its own.
    """
    if runtime is not None:
        _require_own("--runtime", addresses)
        settings = settings.model_copy(update={"runtime": runtime_of(runtime)})
    settings = in_dtype(settings, dtype, *addresses)
    if dtype is not None and settings.runtime == LLAMA_CPP:
        raise UsageError(
            f"--dtype is for vLLM: what {LLAMA_CPP} serves is quantised as its file is; leave it "
            "out"
        )
    return settings


def _require_own(option: str, addresses: tuple[str | None, ...]) -> None:
    if address := next(filter(None, addresses), None):
        raise UsageError(
            f"{option} is for a model that lhkit serves itself, and {address} serves already: "
            "leave one of them out"
        )
