"""The Gemma that lhkit serves itself: its names, and how to serve it from weights on this machine.

Making the weights is `weights`' business, running the server `vllm_server`'s.
"""

from datetime import datetime
from pathlib import Path

from lhkit.errors import UsageError
from lhkit.models.families import parser_args
from lhkit.models.vllm_server import ServerSettings
from lhkit.models.weights import weights_folder

EMBEDDED = "gemma-base"
EMBEDDED_NAMES = ("gemma", EMBEDDED)
"""`gemma` will be the tuned one once an adapter ships; until then both are the base model."""


def embedded_name(name: str | None) -> str:
    """Return the served name of an embedded model.

    Raises:
        UsageError: there is no embedded model of that name.
    """
    if name is None or name in EMBEDDED_NAMES:
        return EMBEDDED
    known = ", ".join(EMBEDDED_NAMES)
    raise UsageError(
        f"no embedded model {name!r}: choose one of {known}, "
        "or say where it is served with --base-url"
    )


def serving_plan(
    cache_dir: Path, now: datetime, *, port: int | None = None, server_parser: bool = False
) -> ServerSettings:
    """Return how to serve the embedded Gemma, whether its weights are in place or not.

    With `server_parser` the server also parses calls itself, as the `openai` dialect needs it; all
    other dialects work as before.
    """
    return ServerSettings(
        model=weights_folder(cache_dir),
        served_name=EMBEDDED,
        log_path=cache_dir / "logs" / f"{EMBEDDED}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        extra_args=parser_args(EMBEDDED) if server_parser else (),
    )
