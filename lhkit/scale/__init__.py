"""One run over many replicas, placed and watched by Ray: the only package that knows Ray.

A replica is an actor: it starts a server on its node (or talks to servers that are there), opens
the toolset and plays samples. The driver keeps what must be one: plan, hashes, journal, retries. A
replica that is lost gives back what it had not finished; it was never a verdict.
"""

from lhkit.scale.cluster import Cluster, connected
from lhkit.scale.placement import (
    AT_ONCE_ON_GPUS,
    LOG,
    SCRIPTED,
    Part,
    Placement,
    Room,
    instructions_for,
    require_model,
    require_ray,
)
from lhkit.scale.runner import RaySampleRunner

__all__ = [
    "AT_ONCE_ON_GPUS",
    "LOG",
    "SCRIPTED",
    "Cluster",
    "Part",
    "Placement",
    "RaySampleRunner",
    "Room",
    "connected",
    "instructions_for",
    "require_model",
    "require_ray",
]
