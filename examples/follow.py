#!/usr/bin/env python3
"""Asks a question and prints the answer as it arrives. Kill the server and restart it: the answer continues.

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
SILENCE_SECONDS = 40  # the server sends something every 15
TRIES = 8
ENDS = ("chat.done", "chat.cancelled", "chat.error", "snapshot")  # a snapshot: the events are no longer kept
LOST = (OSError, http.client.HTTPException)


def is_transient(error):
    return not isinstance(error, urllib.error.HTTPError) or error.code == 429 or error.code >= 500


def wait(tries):
    time.sleep(random.uniform(0, min(20, 0.2 * 2**tries)))


def post(path, **body):
    """Retries until there is a response. With a `requestId` this starts nothing twice."""
    for tries in range(TRIES):
        try:
            request = urllib.request.Request(SERVER + path, json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except LOST as error:
            if tries == TRIES - 1 or not is_transient(error):
                raise
        wait(tries)


def events(generation, after=0):
    """Yields every event of a generation once and in order, across any number of connections."""
    tries = 0
    while True:
        try:
            position = {"Last-Event-ID": str(after)}
            request = urllib.request.Request(f"{SERVER}/v1/generations/{generation}/events", headers=position)
            with urllib.request.urlopen(request, timeout=SILENCE_SECONDS) as stream:
                for event in frames(stream):
                    after, tries = event["seq"], 0
                    yield event
                    if event["type"] in ENDS:
                        return
        except LOST as error:
            if not is_transient(error):
                raise
        wait(tries)
        tries += 1


def frames(stream):
    """A frame is complete once the empty line after it has arrived; an incomplete one is sent again."""
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
                # A failed attempt is withdrawn: discard its text. The answer starts over.
                print("\n[withdrawn]", flush=True)
            elif event["type"] == "chat.interrupted":
                note(f"{event['payload']['reason']}: resume or dismiss it")
            elif event["type"] in ENDS:
                note(event["payload"].get("errorMessage") or event["type"])
    except KeyboardInterrupt:
        # Only this program stops. The generation continues, and a client that reconnects misses nothing.
        note(f"continue with: follow.py follow {generation} {position}")
        sys.exit(130)


def main(command, target, position="0"):
    key = str(uuid.uuid4())
    if command == "ask":
        follow(post("/v1/generations", content=target, requestId=key)["generationId"])
    elif command == "follow":
        follow(target, int(position))
    elif command in ("cancel", "resume", "dismiss"):
        print(post(f"/v1/generations/{target}/{command}"))
    elif command in ("retry", "continue"):
        started = post(f"/v1/generations/{target}/retry", mode=command, requestId=key)
        follow(started["generationId"])


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
