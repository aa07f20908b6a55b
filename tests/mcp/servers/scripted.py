"""A minimal MCP server over stdio that misbehaves in the way its first argument names.

No library: what stands here is what goes over the wire. The second argument, where given, is a
file that the process ids of the server and its child are written to.
"""

import json
import os
import subprocess
import sys
import time

HOW = sys.argv[1]
BARS = {
    "name": "get_bars",
    "description": "Daily bars.",
    "inputSchema": {
        "type": "object",
        "properties": {"codes": {"type": "array", "items": {"type": "string"}}},
        "required": ["codes"],
    },
}
PRICES = {
    "type": "object",
    "properties": {"close": {"type": "number"}},
    "required": ["close"],
}


def send(message):
    sys.stdout.write(message if isinstance(message, str) else json.dumps(message))
    sys.stdout.write("\n")
    sys.stdout.flush()


def answer(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def hang():
    time.sleep(600)


def initialize(request):
    if HOW == "hangs-at-start":
        hang()
    version = {"speaks-2024": "2024-11-05", "speaks-nonsense": "tomorrow"}.get(HOW, "2025-06-18")
    info = {"name": "scripted", "version": "" if HOW == "no-version" else "1.4.0"}
    if HOW == "refuses-handshake":
        error = {"code": -32600, "message": "not with you"}
        send({"jsonrpc": "2.0", "id": request["id"], "error": error})
        return
    if HOW == "misses-info":
        answer(request, {"protocolVersion": version, "capabilities": {}})
        return
    if HOW == "endless-version":
        info["version"] = "1." + "9" * 1_000_000
    if HOW == "sdk-version":
        info["version"] = sys.argv[3]
    answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})


def list_tools(request):
    cursor = request.get("params", {}).get("cursor")
    if HOW == "hangs-at-list":
        hang()
    elif HOW == "many-pages":
        page = int(cursor or 0)
        tools = [{**BARS, "name": f"tool_{page}_{i}"} for i in range(3)]
        more = {"nextCursor": str(page + 1)} if page < 29 else {}
        answer(request, {"tools": tools, **more})
    elif HOW == "cursor-loop":
        answer(request, {"tools": [], "nextCursor": "b" if cursor == "a" else "a"})
    elif HOW == "endless-pages":
        answer(request, {"tools": [], "nextCursor": str(int(cursor or 0) + 1)})
    elif HOW == "repeats-name":
        answer(
            request, {"tools": [BARS, {**BARS, "description": "Another."}, {**BARS, "name": "x"}]}
        )
    elif HOW == "bad-schemas":
        plain = {"type": "object"}
        draft7 = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"pair": {"type": "array", "items": [{}, {}]}},
        }
        tools = [
            BARS,
            {"name": "no_object", "inputSchema": "codes"},
            {"name": "no_schema", "inputSchema": {"type": "objet"}},
            {"name": "far", "inputSchema": {"$ref": "http://127.0.0.1:9/schema.json"}},
            {"name": "lost", "inputSchema": plain, "outputSchema": {"$ref": "#/$defs/X"}},
            "not a tool",
            {"name": "draft7", "inputSchema": draft7},
        ]
        answer(request, {"tools": tools})
    elif HOW == "no-tools-method":
        error = {"code": -32601, "message": "Method not found"}
        send({"jsonrpc": "2.0", "id": request["id"], "error": error})
    elif HOW == "tools-not-a-list":
        answer(request, {"tools": {"get_bars": BARS}})
    elif HOW in {"off-schema", "nan-structured"}:
        answer(request, {"tools": [{**BARS, "outputSchema": PRICES}]})
    else:
        answer(request, {"tools": [BARS]})


def call(request):
    structured = text("see the structured part")
    if HOW == "hangs-at-call":
        hang()
    elif HOW == "dies-at-call":
        sys.stderr.write(f"Traceback: out of memory, token={os.environ.get('SECRET_TOKEN')}\n")
        sys.stderr.flush()
        os._exit(7)
    elif HOW == "killed-at-call":
        os.kill(os.getpid(), 9)
    elif HOW == "garbage-at-call":
        send("{'close': 12.5}")
    elif HOW == "half-json-at-call":
        send('{"jsonrpc": "2.0", "id": ' + str(request["id"]) + ', "result": {"content": [')
    elif HOW == "result-no-object":
        send({"jsonrpc": "2.0", "id": request["id"], "result": [1, 2]})
    elif HOW == "quotes-token":
        words = f"token {os.environ.get('SECRET_TOKEN')} was refused"
        answer(request, {**text(words), "isError": True})
    elif HOW == "is-error":
        answer(request, {**text("no data for 000001.SZ"), "isError": True})
    elif HOW == "prose":
        answer(request, text("The close was 12.5 yuan."))
    elif HOW == "nan-text":
        answer(request, text('{"close": NaN}'))
    elif HOW == "infinite-text":
        answer(request, text('{"close": 1e999}'))
    elif HOW == "nan-structured":
        answer(request, {**structured, "structuredContent": {"close": float("nan")}})
    elif HOW == "off-schema":
        answer(request, {**structured, "structuredContent": {"close": "12.5"}})
    elif HOW == "huge":
        rows = [{"close": i, "note": "x" * 1000} for i in range(8000)]
        answer(request, text(json.dumps({"rows": rows})))
    elif HOW == "too-huge":
        sys.stdout.write("x" * (40 * 1024 * 1024))
        sys.stdout.flush()
        hang()
    elif HOW == "wrapped-text":
        answer(request, {**text("{}"), "structuredContent": {"result": '{"rows": [{"close": 1}]}'}})
    elif HOW == "asks-back":
        send({"jsonrpc": "2.0", "id": "q1", "method": "sampling/createMessage", "params": {}})
        refusal = json.loads(sys.stdin.readline())
        answer(request, text(json.dumps({"error": refusal["error"]["code"]})))
    else:
        codes = request["params"]["arguments"].get("codes", [])
        answer(request, text(json.dumps({"codes": codes, "pid": os.getpid()})))


def main():
    pids = [os.getpid()]
    if HOW in {"keeps-a-child", "child-keeps-pipes"}:
        # It inherits stdin, stdout and stderr, and outlives whoever started it.
        pids.append(subprocess.Popen(["sleep", "600"]).pid)
    if len(sys.argv) > 2 and sys.argv[2]:
        with open(sys.argv[2], "a") as handle:
            handle.write("".join(f"{pid}\n" for pid in pids))
    if HOW == "exits-at-start":
        sys.stderr.write("ModuleNotFoundError: No module named 'tushare'\n")
        sys.exit(3)
    if HOW == "banner":
        send("Welcome to scripted 1.4.0!\n***\n")
    if HOW == "endless-banner":
        while True:
            sys.stdout.write("still loading ...\n")
    if HOW == "only-banner":
        send("Usage: scripted [OPTIONS]")
        hang()
    if HOW == "floods-stderr":
        for _ in range(10):
            sys.stderr.write(("." * 1023 + "\n") * 1024)
        sys.stderr.write("the last line\n")
        sys.stderr.flush()
    while line := sys.stdin.readline():
        request = json.loads(line)
        handler = {"initialize": initialize, "tools/list": list_tools, "tools/call": call}
        if request.get("method") in handler:
            handler[request["method"]](request)
        if HOW == "child-keeps-pipes" and request.get("method") == "tools/list":
            os._exit(0)
    if HOW == "ignores-the-end":
        hang()


main()
