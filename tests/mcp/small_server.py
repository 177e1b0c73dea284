"""A test server, run as a process: the text files of a folder.

python files_server.py FOLDER

Its two tools have the names of the reference file server from npm, which `make nightly` tests.
"""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

FOLDER = Path(sys.argv[1]).resolve()
server = MCPServer("files", version="1.0", log_level="ERROR")


def _inside(path: str) -> Path:
    target = Path(path).resolve()
    if not target.is_relative_to(FOLDER):
        raise ValueError(f"{path} is not in {FOLDER}")
    return target


@server.tool()
def read_text_file(path: str) -> str:
    """Read a text file."""
    return _inside(path).read_text(encoding="utf-8")


@server.tool()
def write_file(path: str, content: str) -> str:
    """Write a text file, replacing its content."""
    _inside(path).write_text(content, encoding="utf-8")
    return f"wrote {path}"


if __name__ == "__main__":
    server.run("stdio")
