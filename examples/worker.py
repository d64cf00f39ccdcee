#!/usr/bin/env python3
"""A worker: it produces an answer outside of Outlast and appends it.

    examples/worker.py --server http://127.0.0.1:8787 --content "Count, please."
    examples/worker.py --server http://127.0.0.1:8787 --generation gen_...

It needs only Python's standard library and stores nothing on disk. Kill it in the middle and restart it
with the same generation: it claims the generation, reads what was said so far, and continues with the
next word. PROTOCOL.md, "Workers", explains each step.
"""

import argparse
import http.client
import json
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.request


COUNTING = "".join(f"{number}, " for number in range(1, 40)) + "40."


# No connection, a lost one, or a response that is not JSON: the request may or may not have arrived.
LOST = (OSError, http.client.HTTPException, ValueError)


class Refused(Exception):
    """The server refused the request."""

    def __init__(self, status, problem):
        super().__init__(f"{status} {problem.get('code')}: {problem.get('detail')}")
        self.status = status
        self.problem = problem
        self.code = problem.get("code")


class Outlast:
    """One server. Every request is retried until there is a response."""

    def __init__(self, base, patience):
        self.base = base.rstrip("/")
        self.patience = patience
        key = os.environ.get("OUTLAST_API_KEY")
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"

    def call(self, method, path, body=None):
        """Returns the response, and whether an earlier try may have succeeded without a response."""
        give_up = time.monotonic() + self.patience
        wait = 0.05
        unsure = False
        while True:
            try:
                return self.once(method, path, body), unsure
            except Refused as refused:
                if refused.status not in (429, 503):
                    refused.unsure = unsure
                    raise
                error = refused
            except LOST as lost:
                error = lost
            unsure = True
            if time.monotonic() > give_up:
                raise error
            time.sleep(wait)
            wait = min(wait * 2, 2.0)

    def once(self, method, path, body):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, self.headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            try:
                problem = json.load(error)
            except ValueError:
                problem = {"detail": "no problem document"}
            raise Refused(error.code, problem) from None


class Worker:
    """The worker of one generation."""

    def __init__(self, server, generation):
        self.server = server
        self.path = f"/v1/generations/{generation}"
        self.over = threading.Event()
        # A claim ends every earlier epoch, including ours before a restart: nobody else can append now.
        state = server.call("POST", f"{self.path}/claim", {"keep": True})[0]
        self.lease = state.get("lease")
        self.update(state)

    def update(self, state):
        self.epoch = state["epoch"]
        self.last = state["lastSeq"]

    def said(self):
        """The text so far. The worker has no other memory."""
        parts = self.server.call("GET", self.path)[0]["contentParts"]
        return "".join(part["text"] for part in parts if part["type"] == "text")

    def append(self, events):
        body = {"epoch": self.epoch, "lease": self.lease, "expectedSeq": self.last, "events": events}
        try:
            state, _ = self.server.call("POST", f"{self.path}/events", body)
        except Refused as refused:
            # A batch is recorded as a whole or not at all, and nobody else appends in our epoch. So if a
            # try got no response and the log has advanced, it was that try.
            if refused.code == "seq_conflict" and refused.unsure:
                self.last = refused.problem["lastSeq"]
                return
            # The same goes for a batch that ended the generation.
            ended = events[-1]["type"] == "chat.done" and refused.problem.get("statusWas") == "completed"
            if refused.code == "already_ended" and refused.unsure and ended:
                return
            raise
        self.update(state)

    def heartbeat(self, every):
        """Keeps the claim alive while there is nothing to append, and notices a cancel."""
        while not self.over.wait(every):
            try:
                self.server.once("POST", f"{self.path}/heartbeat", {"epoch": self.epoch, "lease": self.lease})
            except Refused as refused:
                if refused.code in ("already_ended", "stale_producer"):
                    self.over.set()
            except LOST:
                pass  # the next one may arrive

    def run(self, words, pace, heartbeat):
        beats = threading.Thread(target=self.heartbeat, args=(heartbeat,), daemon=True)
        beats.start()
        # A real worker would ask its model to continue from here; this one knows its text.
        already = self.said()
        left = remaining(words, already)
        print(f"epoch {self.epoch}: {len(words) - len(left)} words done, {len(left)} to go", flush=True)
        try:
            for word in left:
                if self.over.wait(pace):
                    return "stopped"
                self.append([{"type": "chat.delta", "payload": {"text": word}}])
            usage = {"inputTokens": 1, "outputTokens": len(words)}
            done = {"type": "chat.done", "payload": {"finishReason": "stop"}}
            self.append([{"type": "usage", "payload": usage}, done])
            return "done"
        except Refused as refused:
            if refused.code in ("already_ended", "stale_producer"):
                return f"stopped: {refused}"
            raise
        finally:
            self.over.set()


def remaining(words, already):
    """The words that have not been appended yet."""
    for count in range(len(words) + 1):
        if "".join(words[:count]) == already:
            return words[count:]
    raise SystemExit(f"the text so far is not the start of the answer: {already!r}")


def main():
    options = argparse.ArgumentParser(description="Produces an answer outside of Outlast and appends it.")
    options.add_argument("--server", default="http://127.0.0.1:8787")
    options.add_argument("--generation", help="claim this one; by default a new one is started")
    options.add_argument("--content", default="Count, please.", help="the user's message")
    options.add_argument("--text", default=COUNTING, help="the answer")
    options.add_argument("--pace", type=float, default=0.1, help="seconds before each word")
    options.add_argument("--heartbeat", type=float, default=5.0, help="seconds between heartbeats")
    options.add_argument("--patience", type=float, default=60.0, help="seconds to retry a lost server")
    given = options.parse_args()

    server = Outlast(given.server, given.patience)
    generation = given.generation
    if generation is None:
        body = {"content": given.content, "producer": "external", "model": "worker.py"}
        body["requestId"] = f"worker-{os.getpid()}-{time.time_ns()}"  # so that a retry starts nothing twice
        generation = server.call("POST", "/v1/generations", body)[0]["generationId"]
        print(f"generation {generation}", flush=True)
    words = re.findall(r"\s*\S+\s*", given.text)
    try:
        outcome = Worker(server, generation).run(words, given.pace, given.heartbeat)
    except Refused as refused:
        print(f"refused: {refused}", flush=True)
        sys.exit(1)
    print(outcome, flush=True)


if __name__ == "__main__":
    main()
