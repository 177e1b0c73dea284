"""`lhkit mcp`: tools for other MCP clients."""

from typing import Annotated

import typer

from lhkit.cli.chat import ChatOptions, open_talk
from lhkit.cli.command import command
from lhkit.cli.options import Database, Locale, OpenedToolset, World
from lhkit.errors import MissingPackageError
from lhkit.locales import load_catalog
from lhkit.settings import DEFAULT_TOOLSET, Settings
from lhkit.toolset import closing_session


@command(
    "lhkit mcp serve --toolset mine.py:own",
    "lhkit mcp serve --allow-writes --locale en",
    name="serve",
)
async def serve_tools(
    *,
    toolset: OpenedToolset = DEFAULT_TOOLSET,
    world: World = None,
    file: Database = None,
    locale: Locale = None,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Also for a client that cannot ask its person.")
    ] = False,
    settings: Settings,
) -> int:
    """Serve tools by MCP on standard input and output; a client's person is asked to write.

    Raises:
        LhkitError: the toolset or its data cannot be had, or the SDK is not installed.
    """
    try:
        from lhkit.mcp.serving import McpServing
    except ImportError as error:
        raise MissingPackageError(
            "lhkit mcp serve needs the package mcp: install lhkit[mcp], or in a clone run make venv"
        ) from error

    told = settings.model_copy(update={"locale": locale or settings.locale})
    talk = ChatOptions(toolset=toolset, world=world, file=file)
    surroundings = open_talk(talk, told)
    with closing_session(surroundings.session) as session:
        serving = McpServing(
            session,
            name=surroundings.toolset_name,
            catalog=load_catalog(told.locale),
            allow_writes=allow_writes,
        )
        await serving.run()
    return 0
