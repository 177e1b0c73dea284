"""A toolset whose tool kills on demand: its own process, its node, or the driver.

A file `FOLDER/N` specifies what call N kills, once. Uploaded to the nodes with its folder.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sibling import ODD_ONE

from lhkit.conversation.tool_results import ToolErr, ToolOk
from lhkit.tools.definition import ToolDefinition
from lhkit.tools.registry import ToolRegistry

WHOLE = {"type": "integer"}
WHO = {"process": os.getpid(), "node": os.getppid(), "file": __file__}


def work(args: Mapping[str, Any], _deps: Any) -> ToolOk | ToolErr:
    sys.stdout.write(f"tool says {args['n']}\n")
    order = Path(args["folder"]) / str(args["n"])
    if order.exists():
        if order.is_fifo():  # two calls on two nodes: none goes on before both are there
            order.open("r" if args["n"] == 1 else "w").close()
            return ToolOk(WHO)
        victim = order.read_text()
        order.unlink()
        pid = {"replica": os.getpid(), "node": os.getppid()}.get(victim)
        os.kill(pid or int(victim), signal.SIGKILL)
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
