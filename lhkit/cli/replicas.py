"""What `--ray` asks for: where replicas are placed, and what each of them plays with."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from lhkit import app, scale
from lhkit.cli.options import EvalOptions, MatrixOptions
from lhkit.errors import UsageError
from lhkit.locales import Catalog
from lhkit.models.vllm_server import MAX_NUM_SEQS
from lhkit.scale import Part, Placement, Room
from lhkit.settings import Settings
from lhkit.text import printable


def placement_of(options: EvalOptions | MatrixOptions) -> Placement | None:
    """Return where replicas are put; None without `--ray`.

    Raises:
        UsageError: there is something to place and no cluster.
    """
    if options.ray is not None:
        return Placement(
            address=options.ray,
            replicas=options.replicas or 1,
            gpus=options.gpus or 0,
            cpus=1 if options.cpus is None else options.cpus,
        )
    given = {
        "--replicas": options.replicas,
        "--gpus-per-replica": options.gpus,
        "--cpus-per-replica": options.cpus,
    }
    if idle := next((name for name, value in given.items() if value is not None), None):
        raise UsageError(f"{idle} is for --ray: give both, or neither")
    return None


def part_of(
    choice: app.ModelChoice,
    settings: Settings,
    placement: Placement,
    *,
    concurrency: int | None,
    **more: Any,
) -> Part:
    """Return what each replica of a run plays with; `more` are fields of `Part` as they are."""
    base_urls = () if choice.base_url is None else (choice.base_url, *choice.beside)
    part = Part(
        model=choice.name,
        base_urls=base_urls,
        dialect=choice.dialect,
        constraint=choice.constraint,
        dtype=settings.dtype,
        gpus=placement.gpus,
        **more,
    )
    if concurrency is not None:
        return replace(part, at_once=-(-concurrency // placement.replicas))
    if part.is_scripted:
        return part
    return replace(part, at_once=scale.AT_ONCE_ON_GPUS if placement.gpus else MAX_NUM_SEQS)


def waiting(placement: Placement, catalog: Catalog) -> Callable[[Room], None]:
    """Return what tells that no replica has a place yet, and what each takes."""

    def tell(free: Room) -> None:
        words = catalog.text(
            "eval.no_room",
            gpus=placement.gpus,
            cpus=f"{placement.cpus:g}",
            free_gpus=f"{free.gpus:g}",
            free_cpus=f"{free.cpus:g}",
        )
        Console(stderr=True).print(Text(printable(words)), soft_wrap=True)

    return tell
