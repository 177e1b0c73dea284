"""`lhkit eval`: run scenarios against a model and score them."""

from lhkit.cli.eval.eval_options import EvalOptions
from lhkit.cli.frame.command import command
from lhkit.settings import Settings


@command(
    "lhkit eval --limit 8",
    "lhkit eval shop.yaml --toolset shop.py:toolset --model gold",
    "lhkit eval --base-url http://127.0.0.1:8000 --fail-under 85",
    "lhkit eval --ray local --replicas 2",
)
async def evaluate(
    options: EvalOptions, settings: Settings, *, start_s: float | None = None
) -> int:
    """Run the scenarios, print the table and return the exit code.

    Args:
        options: the command's options.
        settings: of this process.
        start_s: start of the command on the clock of `time.perf_counter`; by default the start of
            the process.

    Raises:
        LhkitError: scenarios, run folder, setup or server are invalid.
    """
    from lhkit.cli.eval.eval_run import run_eval  # slow, and not needed for `lhkit eval --help`

    return await run_eval(options, settings, start_s=start_s)
