"""A test server that sends the messages in a file. An answer `die` ends it.

python raw.py FILE [WORDS …]

FILE is JSON: `answers` (the rest of the message with the id, by tool), `tools` (fields of a tool,
by name), `before` (what it writes first), `info` (name and version), `last` (written to the
standard error before it ends).
"""

import json
import sys
from pathlib import Path
from typing import Any

script = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


def answer(method: str, params: Any) -> Any:
    """Return the message without its id."""
    if method == "initialize":
        info = script.get("info", {"name": "raw", "version": "1"})
        version = params["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        return {"result": result}
    if method == "tools/list":
        schema = {"inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}
        tools = {name: {} for name in script["answers"]} | script.get("tools", {})
        return {"result": {"tools": [{"name": name, **schema, **tools[name]} for name in tools]}}
    if script["answers"].get(params["name"]) == "die":
        sys.stderr.write(script["last"])
        sys.stderr.flush()
        sys.exit(3)
    return script["answers"][params["name"]]


sys.stdout.write(script.get("before", ""))
sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and not script.get("silent"):
        text = json.dumps({"jsonrpc": "2.0", "id": message["id"]})[:-1]
        rest = json.dumps(answer(message["method"], message.get("params")))[1:]
        sys.stdout.write(f"{text}, {rest}\n")
        sys.stdout.flush()
