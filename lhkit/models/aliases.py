"""Served names that tell what nobody could ask a server otherwise: its weights and its numbers."""

import re

from lhkit.precision import DTYPES, ServedDtype

_ALIAS = "lhkit-weights-sha256-"
_DTYPE_ALIAS = "lhkit-dtype-"


def aliases_of(*, weights_sha256: str, dtype: ServedDtype) -> tuple[str, ...]:
    """Return the served names that tell what nobody could ask a server otherwise; none if unknown.

    They stand behind the model's own name, which is the one that vLLM puts into answers and
    metrics.
    """
    return (
        *((alias_of(weights_sha256),) if weights_sha256 else ()),
        *((f"{_DTYPE_ALIAS}{dtype}",) if dtype != "auto" else ()),
    )


def alias_of(sha256: str) -> str:
    """Return the served name that tells which weights a server loaded.

    Whoever lists its models learns it, from any machine and whatever became of the folder.
    """
    return f"{_ALIAS}{sha256}"


def sha256_of(served_name: str) -> str:
    """Return the hash that a served name tells; empty for a name that is none of ours."""
    told = served_name.removeprefix(_ALIAS)
    return told if told != served_name and re.fullmatch("[0-9a-f]{64}", told) else ""


def dtype_told(served_name: str) -> str:
    """Return the type of number that a served name tells; empty for a name that is none of ours."""
    told = served_name.removeprefix(_DTYPE_ALIAS)
    return told if told != served_name and told in DTYPES else ""
