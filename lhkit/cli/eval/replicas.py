"""Open the Ray replicas of `lhkit eval`: those of `--ray`, or two for one fast server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec

from rich.console import Console

from lhkit import scale
from lhkit.base.errors import LhkitError, SetupError
from lhkit.base.locales import Catalog
from lhkit.base.process import usable_cores
from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.eval.evaluation import Evaluation, OpenedModel
from lhkit.cli.frame.console import print_lines
from lhkit.scale import Placement, Resources
from lhkit.scale.placement import LOCAL
from lhkit.toolset import isolation_issue

_PROCESSES = 2
"""More bring nothing: then one API process of vLLM is the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingLimits:
    """From where on two processes run the samples of one server.

    Attributes:
        conversations: that the server answers at once; with fewer, one process of lhkit keeps up.
        cores: of this machine, for both processes and a server beside them.
        samples: that are missing. On an H200 with 256 conversations at once, two processes saved
            3.4 ms a sample (55.7 instead of 46.9 a second). Ray took 13 s to start and end on two
            cores, which 4,000 samples gain back.
    """

    conversations: int = 64
    cores: int = 4
    samples: int = 5_000


SHARING_LIMITS = SharingLimits()


@asynccontextmanager
async def open_replicas(
    evaluation: Evaluation, placement: Placement, catalog: Catalog
) -> AsyncIterator[OpenedModel]:
    """Yield the Ray replicas of `--ray`; report on standard error that they start."""
    counts = {"count": placement.replicas, "address": placement.address}
    print_lines([catalog.text("eval.ray", **counts)], Console(stderr=True))
    async with _placed(evaluation, placement, catalog) as opened:
        yield opened


@asynccontextmanager
async def share_server(
    evaluation: Evaluation,
    opened: OpenedModel,
    options: EvalOptions,
    catalog: Catalog,
    limits: SharingLimits = SHARING_LIMITS,
) -> AsyncIterator[OpenedModel]:
    """Yield two local replicas for the server of `opened` where they are faster, or `opened`.

    What is done and why is printed. Replicas that do not start, or that see another model, are
    given up: they were not requested.
    """
    if not _is_limited(evaluation, opened, options, limits):
        yield opened
        return
    console, each = Console(stderr=True), opened.concurrency // _PROCESSES
    counts = {"count": _PROCESSES * each, "processes": _PROCESSES, "each": each}
    if find_spec("ray") is None:
        print_lines([catalog.text("eval.sharing.no_ray", **counts)], console)
        yield opened
        return
    print_lines([catalog.text("eval.sharing.starts", **counts)], console)
    async with AsyncExitStack() as stack:
        try:
            shared = _replicas_of(evaluation, opened, catalog, each)
            replicas = await stack.enter_async_context(shared)
        except LhkitError as error:
            why = catalog.translate(error)
            print_lines([catalog.text("eval.sharing.failed", why=why)], console)
            replicas = opened
        yield replicas


def _is_limited(
    evaluation: Evaluation, opened: OpenedModel, options: EvalOptions, limits: SharingLimits
) -> bool:
    """Return whether one process would be the limit of a run that two may share."""
    return (
        opened.asked is not None
        and opened.replicas is None
        and options.concurrency is None
        and not options.stop_when_decided  # it may end after a few samples
        and opened.asked.conversations >= limits.conversations
        and usable_cores() >= limits.cores
        and not isolation_issue(evaluation.prepared.toolset)
        and evaluation.missing(opened.source) >= limits.samples
    )


@asynccontextmanager
async def _replicas_of(
    evaluation: Evaluation, opened: OpenedModel, catalog: Catalog, each: int
) -> AsyncIterator[OpenedModel]:
    """Yield local replicas that use the server of `opened`, `each` conversations at once in each.

    Raises:
        LhkitError: they cannot be started, or identify the server differently.
    """
    identity, choice = opened.identity, evaluation.choice
    choice = replace(
        choice,
        name=choice.name or identity.model,
        base_url=choice.base_url or identity.base_url,
    )
    shared = replace(evaluation, choice=choice)
    placement = Placement(address=LOCAL, replicas=_PROCESSES)
    async with _placed(shared, placement, catalog, concurrency=each) as replicas:
        different = [
            field.name
            for field in fields(identity)
            if getattr(identity, field.name) != getattr(replicas.identity, field.name)
        ]
        if different:  # their samples would have other content hashes
            names = ", ".join(different)
            raise SetupError(f"the replicas identify the server differently ({names})")
        yield replace(replicas, server_s=opened.server_s)


@asynccontextmanager
async def _placed(
    evaluation: Evaluation, placement: Placement, catalog: Catalog, concurrency: int | None = None
) -> AsyncIterator[OpenedModel]:
    """Yield Ray replicas; report on standard error while there is no room for them."""

    def report_waiting(free: Resources) -> None:
        text = catalog.text(
            "eval.no_room",
            gpus=placement.gpus,
            cpus=f"{placement.cpus:g}",
            free_gpus=f"{free.gpus:g}",
            free_cpus=f"{free.cpus:g}",
        )
        print_lines([text], Console(stderr=True))

    log = evaluation.folder / scale.LOG
    async with (
        scale.connect(placement, evaluation.prepared.options.toolset, log) as cluster,
        evaluation.open_replicas(cluster, report_waiting, concurrency) as opened,
    ):
        yield opened
