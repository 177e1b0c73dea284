"""A server that says what a file holds, letter by letter, through pipes. It ends when told `die`.

python raw.py FILE [WORDS …]

FILE is JSON: `answers` (the rest of the message with the id, by tool), `tools` (fields of a tool,
by name), `before` (what it writes first), `info` (name and version), `last` (written to the
standard error before it ends).
"""

import json
import sys
from pathlib import Path
from typing import Any

told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


def answer(method: str, params: Any) -> Any:
    """Return what belongs into the message beside its id."""
    if method == "initialize":
        info = told.get("info", {"name": "raw", "version": "1"})
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        return {"result": result}
    if method == "tools/list":
        schema = {"inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}
        tools = {name: {} for name in told["answers"]} | told.get("tools", {})
        return {"result": {"tools": [{"name": name, **schema, **tools[name]} for name in tools]}}
    if told["answers"].get(params["name"]) == "die":
        sys.stderr.write(told["last"])
        sys.stderr.flush()
        sys.exit(3)
    return told["answers"][params["name"]]


sys.stdout.write(told.get("before", ""))
sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and not told.get("silent"):
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"]})[:-1]
        rest = json.dumps(answer(message["method"], message.get("params")))[1:]
        sys.stdout.write(f"{text}, {rest}\n")
        sys.stdout.flush()
