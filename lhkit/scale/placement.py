"""Where replicas are put, what they play with, what is sent to them: plain values, no secrets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import NamedTuple

from lhkit import app
from lhkit.chat.controller import Assistant
from lhkit.errors import MissingPackageError, UsageError
from lhkit.harness.author.reference import gold_models, silent_model
from lhkit.harness.manifest import versions
from lhkit.harness.plan import ModelSource
from lhkit.harness.run_options import RunOptions
from lhkit.models import served
from lhkit.responses import ModelIdentity
from lhkit.runtimes import VLLM, Runtime
from lhkit.toolset import Session, Toolset, WrappedToolset

SCRIPTED: Mapping[str | None, Callable[[], ModelSource]] = {
    "gold": gold_models,
    "silent": silent_model,
}
"""Models that are scripts: nothing is served for them."""

AT_ONCE_ON_GPUS = 64
"""Conversations at once that a server on graphics cards is started for where nobody says."""

LOCAL = "local"
"""An address: a cluster that is started here, for this command only."""

LOG = "replicas.log"
"""The file in a run's folder that tells of its replicas, their servers, and what Ray says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where replicas are put: how many, and what each takes.

    `address` is `local`, `auto` (the cluster of this node) or the HOST:PORT of a cluster's head.
    A node that could hold a replica is waited for `patience_s` seconds.
    """

    address: str
    replicas: int = 1
    gpus: int = 0
    cpus: float = 1.0
    patience_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What every replica plays with. A key is not in it: each node has it in its environment.

    Without `base_urls` in its options a replica starts a server of its own. `at_once` is how many
    conversations one has.
    """

    options: RunOptions
    at_once: int = served.UNKNOWN_CONCURRENCY
    gpus: int = 0
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def is_scripted(self) -> bool:
        """Whether a script plays."""
        return not self.options.base_urls and self.options.model in SCRIPTED


class Asked(NamedTuple):
    """One try of one sample, by the number of its scenario among those that a replica has."""

    ticket: int
    scenario: int
    repeat: int
    content_hash: str
    attempt: int


class Room(NamedTuple):
    """Graphics cards and cores."""

    gpus: float
    cpus: float


class Introduction(NamedTuple):
    """Who a replica is; `identity` is None of a script, and `server_s` how long it took."""

    identity: ModelIdentity | None
    server_s: float


def require_ray(address: str) -> None:
    """Tell before anything is started that Ray is not there, or is not reached so.

    Raises:
        UsageError: the address is that of Ray's client.
        MissingPackageError: it is not installed.
    """
    if "://" in address:
        raise UsageError(
            f"--ray {address}: the driver has to run on a node of the cluster: give the command "
            "there with --ray auto, for example by `ray job submit`"
        )
    if find_spec("ray") is None:
        raise MissingPackageError(
            "Ray is not installed here: `pip install 'lhkit[ray]'`, in the clone `pip install -e "
            "'.[ray]'`; several servers without it are given by --base-url"
        )


def require_model(choice: app.ModelChoice, runtime: Runtime = VLLM) -> None:
    """Refuse a model that no replica could have.

    Raises:
        UsageError: as `app.require_choice`; beside the embedded ones, `org/model` and a folder
            may be named, for which each replica starts a vLLM, and no other runtime.
    """
    if runtime != VLLM and choice.base_url is None:
        raise UsageError(
            f"the replicas of --ray are served by {VLLM}: leave --runtime {runtime} out, or name "
            "servers of your own by --base-url"
        )
    if choice.is_embedded and "/" in (choice.name or ""):
        served.require_constraint(choice.dialect, choice.constraint, choice.tools)
    else:
        app.require_choice(choice)


def instructions_for(toolset: Toolset, told: Mapping[str, str]) -> Toolset:
    """Return the toolset with other instructions, by language; the same one for none."""

    def assistant(session: Session, locale: str) -> Assistant:
        own = session.assistant
        return replace(own, instructions=told.get(locale, own.instructions))

    return WrappedToolset(inner=toolset, assistant=assistant) if told else toolset
