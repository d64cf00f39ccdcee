#!/usr/bin/env python3
"""Asks a question and prints the answer as it comes. Kill the server and start it again: it goes on.

    follow.py ask "Why is the sky blue?"
    follow.py follow GENERATION [POSITION]
    follow.py cancel|resume|dismiss|retry|continue GENERATION
"""

import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
import uuid

SERVER = os.environ.get("OUTLAST_URL", "http://127.0.0.1:8787")
SILENCE_SECONDS = 40  # the server says something every 15
TRIES = 8
ENDS = ("chat.done", "chat.cancelled", "chat.error", "snapshot")  # a snapshot: the log is no longer kept
LOST = (OSError, http.client.HTTPException)


def may_pass(error):
    return not isinstance(error, urllib.error.HTTPError) or error.code == 429 or error.code >= 500


def wait(tries):
    time.sleep(random.uniform(0, min(20, 0.2 * 2**tries)))


def post(path, **body):
    """Sends it until there is an answer. `requestId` is why a repeat does nothing twice."""
    for tries in range(TRIES):
        try:
            request = urllib.request.Request(SERVER + path, json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except LOST as error:
            if tries == TRIES - 1 or not may_pass(error):
                raise
        wait(tries)


def events(generation, after=0):
    """Every event of a generation once and in order, to its end, across any number of connections."""
    tries = 0
    while True:
        try:
            place = {"Last-Event-ID": str(after)}
            request = urllib.request.Request(f"{SERVER}/v1/generations/{generation}/events", headers=place)
            with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as stream:
                for event in frames(stream):
                    after, tries = event["seq"], 0
                    yield event
                    if event["type"] in ENDS:
                        return
        except LOST as error:
            if not may_pass(error):
                raise
        wait(tries)
        tries += 1


def frames(stream):
    """A frame counts when the empty line after it has come; half a frame will come again."""
    data = None
    for line in stream:
        if line.startswith(b"data: "):
            data = line[6:]
        elif line == b"\n" and data is not None:
            yield json.loads(data)
            data = None


def note(text):
    print(f"\n[{text}]", file=sys.stderr, flush=True)


def follow(generation, position=0):
    try:
        for event in events(generation, position):
            position = event["seq"]
            if event["type"] == "chat.delta":
                print(event["payload"]["text"], end="", flush=True)
            elif event["type"] == "attempt.retracted":
                # An attempt that broke is withdrawn: its words do not count, and the answer begins anew.
                print("\n[withdrawn]", flush=True)
            elif event["type"] == "chat.interrupted":
                note(f"{event['payload']['reason']}: resume or dismiss it")
            elif event["type"] in ENDS:
                note(event["payload"].get("errorMessage") or event["type"])
    except KeyboardInterrupt:
        # Only this program ends. The generation goes on, and whoever comes back misses nothing.
        note(f"go on with: follow.py follow {generation} {position}")
        sys.exit(130)


def main(command, about, position="0"):
    name = str(uuid.uuid4())
    if command == "ask":
        follow(post("/v1/generations", content=about, requestId=name)["generationId"])
    elif command == "follow":
        follow(about, int(position))
    elif command in ("cancel", "resume", "dismiss"):
        print(post(f"/v1/generations/{about}/{command}"))
    elif command in ("retry", "continue"):
        begun = post(f"/v1/generations/{about}/retry", mode=command, requestId=name)
        follow(begun["generationId"])


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
