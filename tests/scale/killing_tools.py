"""A toolset whose tool kills on demand: its own process, its node, or who started the run.

A file `FOLDER/N` says what call N does, once: it is gone before it is done. Sent to the nodes as a
file, with what lies beside it.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sibling import ODD_ONE

from lhkit.tool_results import ToolErr, ToolOk
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry

WHOLE = {"type": "integer"}
WHO = {"process": os.getpid(), "node": os.getppid(), "file": __file__}


def work(args: Mapping[str, Any], _deps: Any) -> ToolOk | ToolErr:
    sys.stdout.write(f"tool says {args['n']}\n")
    deed = Path(args["folder"]) / str(args["n"])
    if deed.exists():
        if deed.is_fifo():  # two calls on two nodes: none goes on before both are there
            deed.open("r" if args["n"] == 1 else "w").close()
            return ToolOk(WHO)
        told = deed.read_text()
        if told != "always":
            deed.unlink()
        pid = {"replica": os.getpid(), "always": os.getpid(), "node": os.getppid()}.get(told)
        os.kill(pid or int(told), signal.SIGKILL)
        signal.pause()  # until that has come about
    if args["n"] % ODD_ONE == 0:
        return ToolErr("odd", "this one fails, on whatever machine")
    return ToolOk(WHO)


TOOLS = ToolRegistry(
    [
        ToolDefinition(
            name="work",
            description="Do a piece of work",
            parameters={
                "type": "object",
                "properties": {"n": WHOLE, "folder": {"type": "string"}},
                "required": ["n", "folder"],
            },
            handler=work,
            timeout_s=120.0,
        )
    ]
)
