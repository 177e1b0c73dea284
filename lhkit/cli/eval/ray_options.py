"""Options to run samples on Ray replicas."""

from typing import TYPE_CHECKING, Annotated

import typer

from lhkit.base.errors import UsageError
from lhkit.cli.frame.command import Options

if TYPE_CHECKING:
    from lhkit.scale import Placement

_MAX_REPLICAS = 4_096
_RAY = "Ray"  # title of a group of options in the help


class RayOptions(Options):
    """Options to run samples on replicas that Ray places; inactive without `ray`."""

    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            rich_help_panel=_RAY,
            help="Run on Ray replicas: local (a new cluster), auto (the cluster of this node), or "
            "HOST:PORT.",
        ),
    ] = None
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MAX_REPLICAS, rich_help_panel=_RAY, help="Number of servers. Default: 1."
        ),
    ] = None
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-replica",
            min=0,
            max=_MAX_REPLICAS,
            rich_help_panel=_RAY,
            help="GPUs per replica. Default: 0.",
        ),
    ] = None
    cpus: Annotated[
        float | None,
        typer.Option(
            "--cpus-per-replica",
            min=0,
            max=_MAX_REPLICAS,
            rich_help_panel=_RAY,
            help="CPU cores per replica. Default: 1.",
        ),
    ] = None

    def placement(self) -> "Placement | None":
        """Return where replicas are placed; None without `--ray`.

        Raises:
            UsageError: another replica option is given without `--ray`.
        """
        from lhkit.scale import Placement

        if self.ray is not None:
            return Placement(
                address=self.ray,
                replicas=self.replicas or 1,
                gpus=self.gpus or 0,
                cpus=1 if self.cpus is None else self.cpus,
            )
        sizes = {
            "--replicas": self.replicas,
            "--gpus-per-replica": self.gpus,
            "--cpus-per-replica": self.cpus,
        }
        for name, value in sizes.items():
            if value is not None:
                raise UsageError(f"{name} is for --ray: give both, or neither")
        return None
