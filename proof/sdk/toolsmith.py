"""An upstream that calls the first tool it is offered, and answers with the tool's result."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Toolsmith:
    def __init__(self):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.last = None
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.last = body
        last = body["messages"][-1]
        if last["role"] == "tool":
            deltas, reason = [{"content": f"It is {last['content']}."}], "stop"
        elif not body.get("tools"):
            return self.send_error(400, "no tools were offered")
        else:
            function = body["tools"][0]["function"]
            call = {"index": 0, "id": "call_1", "type": "function"}
            first = {**call, "function": {"name": function["name"], "arguments": '{"city":'}}
            rest = {"index": 0, "function": {"arguments": '"Paris"}'}}
            deltas, reason = [{"tool_calls": [first]}, {"tool_calls": [rest]}], "tool_calls"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for delta in deltas:
            self.chunk([{"index": 0, "delta": delta, "finish_reason": None}])
        self.chunk([{"index": 0, "delta": {}, "finish_reason": reason}])
        self.chunk([], {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
        self.wfile.write(b"data: [DONE]\n\n")

    def do_GET(self):
        """The last request."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.last).encode())

    def chunk(self, choices, usage=None):
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "toolsmith"}
        self.wfile.write(b"data: " + json.dumps({**chunk, "choices": choices, "usage": usage}).encode() + b"\n\n")

    def log_message(self, *_):
        pass
