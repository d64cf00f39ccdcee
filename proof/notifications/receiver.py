"""An HTTP receiver that keeps what it gets and answers as it is told."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WAIT_SECONDS = 60


class Receiver:
    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.got = []
        self.accepted = []
        self.changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                status = outer.take({name.lower(): value for name, value in self.headers.items()}, body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, headers, body):
        with self.changed:
            status = self.statuses.pop(0) if self.statuses else 204
            self.got.append((headers, body))
            if status < 300:
                self.accepted.append((headers, body))
            self.changed.notify_all()
            return status

    def until(self, count, accepted=False):
        """Waits until that many requests came, or were accepted."""
        with self.changed:
            wanted = lambda: len(self.accepted if accepted else self.got) >= count
            assert self.changed.wait_for(wanted, WAIT_SECONDS), f"got {len(self.got)}, wanted {count}"
