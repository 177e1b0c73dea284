"""One run over many replicas on Ray: the only package that imports Ray.

A replica is an actor: it starts a server on its node (or connects to existing servers), opens the
toolset and runs samples. The driver keeps the plan, the journal and the retries. The unfinished
samples of a lost replica are run again by another one.
"""

from lhkit.scale.cluster import Cluster, connect
from lhkit.scale.placement import (
    GPU_CONCURRENCY,
    LOG,
    Placement,
    ReplicaConfig,
    Resources,
    require_model,
    require_ray,
)
from lhkit.scale.runner import RaySampleRunner

__all__ = [
    "GPU_CONCURRENCY",
    "LOG",
    "Cluster",
    "Placement",
    "RaySampleRunner",
    "ReplicaConfig",
    "Resources",
    "connect",
    "require_model",
    "require_ray",
]
