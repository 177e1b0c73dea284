"""A test server whose results violate their `outputSchema`, which the SDK does not allow.

python liar.py FILE
"""

import json
import sys
from pathlib import Path
from typing import Any

ENTRIES = {"entries": {"type": "array", "items": {"type": "object"}}}
LIE = {
    "name": "lie",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "outputSchema": {"type": "object", "properties": ENTRIES, "required": ["entries"]},
}
PAIR = {
    "name": "pair",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"p": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}},
    },
}
BROKEN = {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "any"}}}}


def answer(method: str, params: Any) -> Any:
    """Return the result of a request."""
    if method == "initialize":
        info = {"name": "liar", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [LIE, PAIR, BROKEN]}
    text = params["arguments"]["text"]
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    structured = {} if text == "nothing" else {"structuredContent": {"entries": [{}, "no entry"]}}
    return {"content": [{"type": "text", "text": "added"}], **structured}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        sys.stdout.write("\n")
        sys.stdout.flush()
