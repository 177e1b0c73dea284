"""The Gemmas that lhkit serves itself: their names, and how to serve a folder of weights.

Making the weights is the business of `weights` and `lhkit.tuning`, running the server
`vllm_server`'s.
"""

from datetime import datetime
from pathlib import Path

from lhkit.errors import UsageError
from lhkit.models.families import parser_args
from lhkit.models.vllm_server import ServerSettings

TUNED = "gemma"
BASE = "gemma-base"
EMBEDDED = TUNED
"""The one that is taken where none is named."""

EMBEDDED_NAMES = (TUNED, BASE)


def embedded_name(name: str | None) -> str:
    """Return the served name of an embedded model.

    Raises:
        UsageError: there is no embedded model of that name.
    """
    if name is None:
        return EMBEDDED
    if name in EMBEDDED_NAMES:
        return name
    known = ", ".join(EMBEDDED_NAMES)
    raise UsageError(
        f"no embedded model {name!r}: choose one of {known}, "
        "or say where it is served with --base-url"
    )


def serving_plan(
    name: str,
    weights: Path,
    cache_dir: Path,
    now: datetime,
    *,
    port: int | None = None,
    server_parser: bool = False,
) -> ServerSettings:
    """Return how to serve a Gemma 3 270M under `name`, whether its weights are in place or not.

    With `server_parser` the server also parses calls itself, as the `openai` dialect needs it; all
    other dialects work as before.
    """
    return ServerSettings(
        model=weights,
        served_name=name,
        log_path=cache_dir / "logs" / f"{name}-{now:%Y%m%d-%H%M%S}.log",
        port=port,
        extra_args=parser_args(EMBEDDED) if server_parser else (),
    )
