"""A `.litertlm` file, which phones load: served by LiteRT-LM in a process of its own.

The engine is the one that flutter_gemma has on a phone, here on the CPU; `litert_serving` is the
server around it. vLLM's client speaks to it: what it cannot tell is empty in records.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from lhkit.errors import MissingPackageError
from lhkit.models.http import LITERT_LM
from lhkit.models.serving import LocalServer, alias_of


def require_litert_lm() -> None:
    """Tell before anything is loaded that nothing could serve it.

    Raises:
        MissingPackageError: LiteRT-LM is not installed here.
    """
    if find_spec("litert_lm") is None:
        raise _no_litert_lm(sys.executable)


def _no_litert_lm(python: str) -> MissingPackageError:
    return MissingPackageError(
        f"LiteRT-LM is not installed in {python}: `pip install 'lhkit[litert]'`, in the clone "
        "`pip install -e '.[litert]'` (47 MB, Linux on x86_64 and others)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteRtSettings:
    """How to serve one `.litertlm` file; `port` None takes a free one.

    `weights_sha256` is the hash of the file, which the server tells by an alias. `threads` is how
    many the engine computes with: what it answers is told with it.
    """

    model: Path
    served_name: str
    log_path: Path
    port: int | None = None
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    start_timeout_s: float = 120.0
    grace_s: float = 5.0
    python: str = sys.executable
    weights_sha256: str = ""

    @property
    def found_as(self) -> str:
        """What the server is found by: another runtime may serve the same name beside it."""
        return f"{self.served_name}.{LITERT_LM}"

    def arguments(self, port: int) -> tuple[str, ...]:
        """Return what follows `python` on the command line."""
        aliases = (alias_of(self.weights_sha256),) if self.weights_sha256 else ()
        return (
            *("-m", "lhkit.models.litert_serving", str(self.model), str(port), str(self.threads)),
            *(self.weights_sha256 or "-", self.served_name, *aliases),
        )

    def environment(self) -> Mapping[str, str]:
        """Return the variables that are set for the server."""
        return {"PYTHONUNBUFFERED": "1"}


class LiteRtServer(LocalServer[LiteRtSettings]):
    """`async with LiteRtServer(settings) as server:` serves at `server.base_url` until the end.

    The process tree ends with the block, and also if this process is killed outright.
    """

    engine: ClassVar[str] = "LiteRT-LM"
    package: ClassVar[str] = "litert_lm"

    def _no_engine(self) -> MissingPackageError:
        return _no_litert_lm(self.settings.python)
