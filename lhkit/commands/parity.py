"""`lhkit parity`: two runs of one model by two runtimes, reply by reply, and what CI allows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from lhkit.commands.console import EXIT_INVALID, EXIT_MISSED, wide_console
from lhkit.commands.options import ParityOptions
from lhkit.commands.report import STDOUT, write_report
from lhkit.errors import UsageError
from lhkit.harness.parity import (
    Divergence,
    Forced,
    Parity,
    forced,
    is_greedy_by,
    parity,
    said_first,
    with_odds,
)
from lhkit.harness.report.parity import parity_markdown, parity_page, parity_table
from lhkit.harness.results import Run
from lhkit.locales import Catalog, load_catalog
from lhkit.models.llama_cpp import LlamaCppHttp
from lhkit.models.served import connect
from lhkit.models.vllm import VllmHttp
from lhkit.settings import Settings
from lhkit.text import printable


async def parity_runs(options: ParityOptions, settings: Settings) -> int:
    """Show how far run b came out as run a did; return the exit code.

    Raises:
        RunError: a folder holds no run, or a broken one; or a file cannot be written.
        UsageError: there is no such locale, or no prompt to ask a server with.
        ModelError: the server that is asked does not answer.
        MissingPackageError: the packages of the extra `report` are not there.
    """
    catalog = load_catalog(options.locale or settings.locale)
    told = await _told(options)
    if options.markdown != STDOUT:
        wide_console().print(parity_table(told, catalog), soft_wrap=True)
    if options.html is not None:
        write_report(options.html, parity_page(told, catalog))
    if options.markdown is not None:
        write_report(options.markdown, parity_markdown(told, catalog))
    console = Console(stderr=options.markdown == STDOUT)
    for path in (options.html, options.markdown):
        if path is not None and path != STDOUT:
            words = printable(catalog.text("report.written", path=path))
            console.print(Text(words), soft_wrap=True)
    code, missed = _beyond(told, options, catalog)
    for line in missed:
        console.print(Text(printable(line)), soft_wrap=True)
    return code


async def _told(options: ParityOptions) -> Parity:
    """Return what the records say, and the servers that are to be asked."""
    run_a = Run.load(options.run_a)
    told = parity(run_a, Run.load(options.run_b))
    if options.ask is not None and told.divergences:
        told = await _asked(told, options.ask)
    scored = [await _scored(told, run_a, address) for address in options.score]
    return replace(told, forced=tuple(scored))


def _beyond(told: Parity, options: ParityOptions, catalog: Catalog) -> tuple[int, list[str]]:
    """Return the exit code, and a sentence for each limit that was passed or cannot be told."""
    missed = []
    if options.max_flips is not None and told.flips > options.max_flips:
        missed.append(
            catalog.text("parity.too_many_flips", count=told.flips, most=options.max_flips)
        )
    if options.max_lost_points is not None and told.lost_points > options.max_lost_points:
        lost, most = f"{told.lost_points:.1f}", f"{options.max_lost_points:g}"
        missed.append(catalog.text("parity.too_many_points", lost=lost, most=most))
    if missed:
        return EXIT_MISSED, missed
    is_limited = options.max_flips is not None or options.max_lost_points is not None
    if is_limited and not told.is_whole:
        return EXIT_INVALID, [catalog.text("parity.not_whole")]
    return 0, []


async def _asked(told: Parity, address: str) -> Parity:
    """Return it with how likely a server holds both tokens where the replies part."""
    askable = [each for each in told.divergences if each.prompt_text and None not in each.ids]
    if not askable:
        raise UsageError(
            "no record keeps the prompt of a reply that differs: play both runs with --keep-prompts"
        )
    async with _telling(address) as model:
        odds = {each.sample_id: await _odds(each, model) for each in askable}
    return with_odds(told, odds, server=model.identity.server)


async def _scored(told: Parity, run_a: Run, address: str) -> Forced:
    """Return how far a server agrees with all that the first run said."""
    replies = said_first(told)
    if not replies:
        raise UsageError(
            f"no record of {told.comparison.name_a} keeps the prompt and the tokens of a reply: "
            "play it with --keep-prompts"
        )
    async with _telling(address) as model:
        read = [(ids, await model.likely_along(prompt, ids)) for prompt, ids in replies]
    who = model.identity
    name = " ".join(filter(None, (who.server, who.title, who.dtype)))
    return forced(name, read, is_own=is_greedy_by(run_a, who))


@asynccontextmanager
async def _telling(address: str) -> AsyncIterator[VllmHttp | LlamaCppHttp]:
    """Yield a server that tells probabilities."""
    model = await connect(address)
    try:
        if not isinstance(model, VllmHttp | LlamaCppHttp):
            raise UsageError(f"{address} tells no probabilities: give a vLLM or llama.cpp server")
        yield model
    finally:
        await model.aclose()


async def _odds(
    each: Divergence, model: VllmHttp | LlamaCppHttp
) -> tuple[float | None, float | None]:
    likely = await model.likely_next(each.prompt_text, each.shared_ids)
    a, b = (likely.get(token) for token in each.ids if token is not None)
    return a, b
