"""The configuration of replicas, and the messages between driver and replica. No secrets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import NamedTuple

from lhkit import app
from lhkit.base.errors import MissingPackageError, UsageError
from lhkit.conversation.responses import ModelIdentity
from lhkit.harness.authoring.reference import REFERENCE_MODELS
from lhkit.harness.records.manifest import versions
from lhkit.harness.running.run_options import RunOptions
from lhkit.models.client import served
from lhkit.models.client.capacity import UNKNOWN_CONCURRENCY
from lhkit.models.runtimes import VLLM, Runtime

GPU_CONCURRENCY = 64
"""The default number of conversations at once for a server on GPUs."""

LOCAL = "local"
"""The address of a cluster that is started for this command only."""

LOG = "replicas.log"
"""The log file of replicas, their servers and Ray in a run folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Number and resources of the replicas.

    Attributes:
        address: `local`, `auto` (the cluster of this node), or HOST:PORT of a cluster's head.
        gpus: GPUs per replica.
        cpus: CPUs per replica.
    """

    address: str
    replicas: int = 1
    gpus: int = 0
    cpus: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """The configuration of every replica; API keys come from each node's environment.

    Attributes:
        options: the run's options; without `base_url` each replica starts its own server.
        concurrency: conversations at once in one replica.
        gpus: GPUs per replica.
        versions: the driver's versions, which every node must have.
    """

    options: RunOptions
    concurrency: int = UNKNOWN_CONCURRENCY
    gpus: int = 0
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def is_scripted(self) -> bool:
        """Whether the model is scripted."""
        return self.options.base_url is None and self.options.model in REFERENCE_MODELS


class SampleRequest(NamedTuple):
    """One attempt at one sample; `scenario` is its index in the scenarios of the replica."""

    ticket: int
    scenario: int
    repeat: int
    content_hash: str
    attempt: int


class Resources(NamedTuple):
    """Numbers of GPUs and CPUs."""

    gpus: float
    cpus: float


class ReplicaInfo(NamedTuple):
    """The model of a replica (None if scripted), and the seconds until its server was ready."""

    identity: ModelIdentity | None
    server_s: float


def require_ray(address: str) -> None:
    """Check that Ray is installed and the address is supported.

    Raises:
        UsageError: the address is one of Ray Client.
        MissingPackageError: Ray is not installed.
    """
    if "://" in address:
        raise UsageError(
            f"--ray {address} is invalid: the driver must run on a node of the cluster. Run the "
            "command there with --ray auto, for example by `ray job submit`."
        )
    if find_spec("ray") is None:
        raise MissingPackageError.of_extra("Ray", "ray", otherwise="leave out --ray")


def require_model(choice: app.ModelChoice, runtime: Runtime = VLLM) -> None:
    """Refuse a model that replicas cannot serve.

    Besides the embedded models, `org/model` and a folder are allowed, served by vLLM.

    Raises:
        UsageError: as `app.require_choice`, or another runtime.
    """
    if runtime != VLLM and choice.base_url is None:
        raise UsageError(
            f"--runtime {runtime} is not supported with --ray, whose replicas use {VLLM}. Leave it "
            "out, or give a running server with --base-url."
        )
    if choice.is_embedded and "/" in (choice.name or ""):
        served.require_constraint(choice.known_dialect, choice.constraint, choice.tools)
    else:
        app.require_choice(choice)
