"""An MCP server over stdio that is all in one JSON file: its version, its tools, its answers.

No library: what stands here is what goes over the wire. `python -S -E described.py FILE`, where
FILE holds {version, protocol, tools, answers}; each start adds a line to `FILE.starts`.
"""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as handle:
    ABOUT = json.load(handle)
with open(sys.argv[1] + ".starts", "a", encoding="utf-8") as handle:
    handle.write("started\n")


def result_of(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": ABOUT.get("protocol", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "described", "version": ABOUT.get("version", "1.0.0")},
        }
    if method == "tools/list":
        return {"tools": ABOUT["tools"]}
    if method == "tools/call":
        payload = ABOUT["answers"][params["name"]]
        return {"content": [{"type": "text", "text": json.dumps(payload)}]}
    return {}


while line := sys.stdin.readline():
    asked = json.loads(line)
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result_of(asked)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
