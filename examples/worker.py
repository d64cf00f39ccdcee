#!/usr/bin/env python3
"""A worker that makes an answer elsewhere and appends it to Outlast.

    examples/worker.py --server http://127.0.0.1:8787 --content "Count, please."
    examples/worker.py --server http://127.0.0.1:8787 --generation gen_...

It needs Python's standard library alone and keeps nothing on disk. Kill it in the middle and start it
again with the same generation: it claims the generation, reads what was said so far, and goes on with
the next word. PROTOCOL.md, "Workers elsewhere", explains each step.
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


# No connection, it broke, or what came was not an answer: nobody knows what arrived.
LOST = (OSError, http.client.HTTPException, ValueError)


class Refused(Exception):
    """The server answered, and said no."""

    def __init__(self, status, problem):
        super().__init__(f"{status} {problem.get('code')}: {problem.get('detail')}")
        self.status = status
        self.problem = problem
        self.code = problem.get("code")


class Outlast:
    """One server. Every call is sent again until there is an answer."""

    def __init__(self, base, patience):
        self.base = base.rstrip("/")
        self.patience = patience
        key = os.environ.get("OUTLAST_API_KEY")
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"

    def call(self, method, path, body=None):
        """Returns the answer, and whether an earlier try may have been taken without our knowing."""
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
    """The producer of one generation."""

    def __init__(self, server, generation):
        self.server = server
        self.path = f"/v1/generations/{generation}"
        self.over = threading.Event()
        # A claim ends every earlier epoch, ours before a restart included: nobody else can append now.
        self.take(server.call("POST", f"{self.path}/claim", {"keep": True})[0])

    def take(self, answer):
        self.epoch = answer["epoch"]
        self.last = answer["lastSeq"]

    def said(self):
        """What stands there already, as text. This is all the memory that the worker has."""
        parts = self.server.call("GET", self.path)[0]["contentParts"]
        return "".join(part["text"] for part in parts if part["type"] == "text")

    def append(self, events):
        body = {"epoch": self.epoch, "expectedSeq": self.last, "events": events}
        try:
            answer, _ = self.server.call("POST", f"{self.path}/events", body)
        except Refused as refused:
            # Batches are taken whole or not at all, and nobody else appends in our epoch. So if a try
            # went unanswered and the log has moved on, it was that try.
            if refused.code == "seq_conflict" and refused.unsure:
                self.last = refused.problem["lastSeq"]
                return
            # The same for a batch that ended the generation.
            ended = events[-1]["type"] == "chat.done" and refused.problem.get("statusWas") == "completed"
            if refused.code == "already_ended" and refused.unsure and ended:
                return
            raise
        self.take(answer)

    def heartbeat(self, every):
        """Says that the worker is alive while it has nothing to append, and notices a cancel."""
        while not self.over.wait(every):
            try:
                self.server.once("POST", f"{self.path}/heartbeat", {"epoch": self.epoch})
            except Refused as refused:
                if refused.code in ("already_ended", "stale_producer"):
                    self.over.set()
            except LOST:
                pass  # the next one may arrive

    def run(self, words, pace, heartbeat):
        beats = threading.Thread(target=self.heartbeat, args=(heartbeat,), daemon=True)
        beats.start()
        # A real worker would ask its model to go on from here; this one knows its text by heart.
        already = self.said()
        left = remaining(words, already)
        print(f"epoch {self.epoch}: {len(words) - len(left)} words are there, {len(left)} to go", flush=True)
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
    """The words that are not there yet."""
    for count in range(len(words) + 1):
        if "".join(words[:count]) == already:
            return words[count:]
    raise SystemExit(f"what was said does not begin the answer: {already!r}")


def main():
    options = argparse.ArgumentParser(description="Makes an answer elsewhere and appends it to Outlast.")
    options.add_argument("--server", default="http://127.0.0.1:8787")
    options.add_argument("--generation", help="take this one; without it a new one is begun")
    options.add_argument("--content", default="Count, please.", help="what the user says, for a new one")
    options.add_argument("--text", default=COUNTING, help="the answer")
    options.add_argument("--pace", type=float, default=0.1, help="seconds before each word")
    options.add_argument("--heartbeat", type=float, default=5.0, help="seconds between signs of life")
    options.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a lost server")
    asked = options.parse_args()

    server = Outlast(asked.server, asked.patience)
    generation = asked.generation
    if generation is None:
        body = {"content": asked.content, "producer": "external", "model": "worker.py"}
        body["requestId"] = f"worker-{os.getpid()}-{time.time_ns()}"  # so that a repeat begins nothing
        generation = server.call("POST", "/v1/generations", body)[0]["generationId"]
        print(f"generation {generation}", flush=True)
    words = re.findall(r"\s*\S+\s*", asked.text)
    try:
        outcome = Worker(server, generation).run(words, asked.pace, asked.heartbeat)
    except Refused as refused:
        print(f"refused: {refused}", flush=True)
        sys.exit(1)
    print(outcome, flush=True)


if __name__ == "__main__":
    main()
