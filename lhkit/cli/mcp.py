"""`lhkit mcp`: serve tools to MCP clients."""

from typing import Annotated, ClassVar

import typer

from lhkit.base.errors import importing
from lhkit.base.locales import load_catalog
from lhkit.base.options import DEFAULT_TOOLSET
from lhkit.cli.chat.chat import open_live_session
from lhkit.cli.frame.command import Options, command
from lhkit.cli.frame.exit_codes import ExitCode
from lhkit.cli.frame.options import Database, Locale, Toolset, World
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
    live = open_live_session(options.toolset, options.world, options.file, settings)
    with closing_session(live.session) as session:
        serving = McpServing(
            session,
            name=live.toolset_name,
            catalog=load_catalog(settings.locale),
            allow_writes=options.allow_writes,
        )
        await serving.run()
    return ExitCode.OK
