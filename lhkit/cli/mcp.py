"""`lhkit mcp`: serve tools to MCP clients."""

from typing import Annotated, ClassVar

import typer
from rich.console import Console

from lhkit.base.errors import UsageError, importing
from lhkit.base.locales import load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.cli.chat.chat import open_live_session
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.console import print_lines
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import Approvals, Database, Locale, Toolset, World
from lhkit.confirm.policy import Front, load_policy, policy_line
from lhkit.harness.running.measured import measured_tools
from lhkit.settings import Settings
from lhkit.toolset import closing_session


class McpServeOptions(Options):
    """Options of `lhkit mcp serve`."""

    prints_data: ClassVar = True

    toolset: Toolset = DEFAULT_TOOLSET
    world: World = None
    file: Database = None
    locale: Locale = None
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Write even if the client cannot ask its user.")
    ] = False
    approvals: Approvals = None
    is_measured_client: Annotated[
        bool,
        typer.Option(
            "--measured-client",
            help="With --approvals: the client has the measured model, prompt and decoding, and "
            "no other tools. lhkit cannot see that, and compares only its own tools.",
        ),
    ] = False


@command(
    "lhkit mcp serve --toolset shop.py:toolset",
    "lhkit mcp serve --allow-writes --locale en",
    name="serve",
)
async def serve_tools(options: McpServeOptions, settings: Settings) -> int:
    """Serve tools by MCP on standard input and output; the client's user confirms writes.

    Raises:
        LhkitError: the toolset or its data cannot be opened, or the SDK is not installed.
    """
    with importing("mcp"):
        from lhkit.mcp.serving import McpServing

    settings = settings.model_copy(update={"locale": options.locale or settings.locale})
    policy = load_policy(options.approvals)
    if options.is_measured_client and policy is None:
        raise UsageError("--measured-client says what --approvals FILE applies to: give the file")
    live = open_live_session(options.toolset, options.world, options.file, settings)
    with closing_session(live.session) as session:
        catalog, console = load_catalog(settings.locale), Console(stderr=True)
        front: Front = None
        if policy is not None:
            now = None
            if options.is_measured_client:
                front = measured_tools(policy, live.toolset, lambda: (session, settings.locale))
                now = front()
            file = str(options.approvals)
            line = policy_line(policy, now, catalog, file=file)
            if policy.unasked and not options.is_measured_client:
                line = catalog.text("policy.client", file=file)
            print_lines([line], console)
        serving = McpServing(
            session,
            name=live.toolset_name,
            catalog=catalog,
            allow_writes=options.allow_writes,
            policy=policy,
            measured=front,
            report=lambda text: print_lines([text], console),
        )
        await serving.run()
    return ExitCode.OK
