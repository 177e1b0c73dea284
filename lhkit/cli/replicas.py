"""The options of `--ray`, and the sentence while no replica has a place."""

from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from lhkit.cli.command import Options
from lhkit.errors import UsageError
from lhkit.locales import Catalog
from lhkit.scale import Placement, Resources
from lhkit.text import printable

_MOST = 4_096


class RayOptions(Options):
    """Where replicas play, if `ray` is given."""

    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Play on replicas that Ray places: local (a cluster for this command), auto (this "
            "node's), or HOST:PORT.",
        ),
    ] = None
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=_MOST, help="With --ray: how many servers. Default: 1."),
    ] = None
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-replica",
            min=0,
            max=_MOST,
            help="With --ray: graphics cards of each. Default: 0.",
        ),
    ] = None
    cpus: Annotated[
        float | None,
        typer.Option(
            "--cpus-per-replica", min=0, max=_MOST, help="With --ray: cores of each. Default: 1."
        ),
    ] = None

    def placement(self) -> Placement | None:
        """Return where replicas are put; None without `--ray`.

        Raises:
            UsageError: replicas are described and no cluster is named.
        """
        sizes = {
            "--replicas": self.replicas,
            "--gpus-per-replica": self.gpus,
            "--cpus-per-replica": self.cpus,
        }
        if self.ray is not None:
            return Placement(
                address=self.ray,
                replicas=self.replicas or 1,
                gpus=self.gpus or 0,
                cpus=1 if self.cpus is None else self.cpus,
            )
        if idle := next((name for name, value in sizes.items() if value is not None), None):
            raise UsageError(f"{idle} is for --ray: give both, or neither")
        return None


def waiting(placement: Placement, catalog: Catalog) -> Callable[[Resources], None]:
    """Return a function that reports that no replica has a place yet, and what each takes."""

    def report(free: Resources) -> None:
        words = catalog.text(
            "eval.no_room",
            gpus=placement.gpus,
            cpus=f"{placement.cpus:g}",
            free_gpus=f"{free.gpus:g}",
            free_cpus=f"{free.cpus:g}",
        )
        Console(stderr=True).print(Text(printable(words)), soft_wrap=True)

    return report
