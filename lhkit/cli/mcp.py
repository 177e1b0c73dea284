"""`lhkit mcp serve`: the tools of any toolset for other MCP clients."""

from lhkit.cli.chat import open_talk
from lhkit.cli.options import ChatOptions, ServeToolsOptions
from lhkit.errors import MissingPackageError
from lhkit.locales import load_catalog
from lhkit.settings import Settings
from lhkit.toolset import closed_after


async def serve_tools(options: ServeToolsOptions, settings: Settings) -> int:
    """Serve standard input and output until the client goes away; return the exit code.

    Raises:
        LhkitError: the toolset or its data cannot be had, or the SDK is not installed.
    """
    try:
        from lhkit.mcp.serving import McpServing
    except ImportError as error:
        raise MissingPackageError(
            "lhkit mcp serve needs the package mcp: install lhkit[mcp], or in a clone run make venv"
        ) from error

    told = settings.model_copy(update={"locale": options.locale or settings.locale})
    talk = ChatOptions(toolset=options.toolset, world=options.world, file=options.file)
    surroundings = open_talk(talk, told)
    with closed_after(surroundings.session) as session:
        serving = McpServing(
            session,
            name=surroundings.toolset_name,
            catalog=load_catalog(told.locale),
            allow_writes=options.allow_writes,
        )
        await serving.run()
    return 0
