"""Two users write a canary string into everything. Nothing of one may reach the other, or the log (I13)."""

import itertools
import json
import secrets
import socket
import tempfile
import time
import urllib.error
from pathlib import Path

from receiver import Receiver
from server import Server

STREAM_SECONDS = 2
WAIT_SECONDS = 60
P256DH = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"


class User:
    def __init__(self, server, name):
        self.server, self.name = server, name
        self.canary = f"canary-{name}-{secrets.token_hex(8)}"
        self.key = server.create_key(name, "read,write,approve")
        self.worker = server.create_key(name, "read,produce")
        self.receiver = Receiver()

    def ask(self, method, path, body=None, key=None):
        return self.server.ask(method, path, body, key or self.key)

    def write(self):
        """Writes the canary wherever text can be written."""
        canary = self.canary
        hook = self.receiver.url + "/" + canary
        self.webhook = self.ask("POST", "/v1/webhooks", {"url": hook})["id"]
        keys = {"p256dh": P256DH, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}
        self.ask("POST", "/v1/push", {"endpoint": hook + "/push", "keys": keys})
        about = {"title": canary, "metadata": {canary: canary}}
        self.conversation = self.ask("POST", "/v1/conversations", about)["id"]
        start = {"conversationId": self.conversation, "content": canary, "system": canary, "metadata": {"note": canary}}
        started = self.ask("POST", "/v1/generations", {**start, "producer": "external"})
        self.generation = started["generationId"]
        self.work()
        job = {"model": "default", "messages": [{"role": "user", "content": canary}], "background": True}
        job |= {"threadId": f"{canary}-thread", "messageId": f"{canary}-message"}
        self.job = self.ask("POST", "/v1/chat/completions", job)["jobId"]
        self.notification = self.until_notified(2)

    def work(self):
        """A worker asks for a decision, gets it, and fails, with tool output on the way."""
        canary, path = self.canary, f"/v1/generations/{self.generation}"
        claimed = self.ask("POST", f"{path}/claim", {}, self.worker)
        state = {"epoch": claimed["epoch"], "lease": claimed["lease"]}
        tool = {"toolUseId": "call_1", "toolName": canary, "toolInput": {canary: canary}}
        first = [
            {"type": "thinking.delta", "payload": {"text": canary}},
            {"type": "chat.delta", "payload": {"text": canary}},
            {"type": "tool.start", "payload": tool},
            {"type": "approval.requested", "payload": tool},
        ]
        batch = {**state, "expectedSeq": claimed["lastSeq"], "events": first}
        appended = self.ask("POST", f"{path}/events", batch, self.worker)
        self.ask("POST", f"{path}/approvals/call_1", {"decision": "approve", "reason": canary})
        second = [
            {"type": "tool.output", "payload": {"toolUseId": "call_1", "stream": "stdout", "text": canary}},
            {"type": "tool.end", "payload": {"toolUseId": "call_1", "result": canary, "isError": False}},
            {"type": "chat.error", "payload": {"errorMessage": canary, "code": "worker_failed"}},
        ]
        batch = {**state, "expectedSeq": appended["lastSeq"], "events": second}
        self.ask("POST", f"{path}/events", batch, self.worker)

    def until_notified(self, count):
        deadline = time.monotonic() + WAIT_SECONDS
        while len(listed := self.ask("GET", "/v1/notifications")["data"]) < count:
            assert time.monotonic() < deadline, "no notification"
            time.sleep(0.05)
        return listed[0]["id"]

    def ids(self):
        return [self.conversation, self.generation, self.job, self.notification, self.webhook, f"{self.canary}-thread"]

    def read(self, path):
        """Everything that a GET returns, an error included. A stream is read for a moment."""
        try:
            with self.server.open("GET", path, key=self.key, timeout=STREAM_SECONDS) as answer:
                text = b""
                while piece := answer.read1():
                    text += piece
                    if b"\n\n" in text and "/events" in path and len(text) > 1_000_000:
                        break
                return text.decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except (TimeoutError, socket.timeout):
            return text.decode()


def paths(document, ids):
    """Every GET of the API, with every id in every place."""
    for path, methods in document["paths"].items():
        if "get" not in methods or path.endswith("/ws"):
            continue
        if "{" not in path:
            yield path
            continue
        for id in ids:
            yield path.replace("{id}", id).replace("{toolUseId}", "call_1").replace("{path}", "a")


def i13_no_byte_of_one_user_reaches_the_other(folder):
    server = Server(folder)
    ada, bob = User(server, "ada"), User(server, "bob")
    for user in [ada, bob]:
        user.write()
    document = ada.ask("GET", "/openapi.json")
    ids = ada.ids() + bob.ids()
    seen = own = 0
    for user, other in [(ada, bob), (bob, ada)]:
        for path in paths(document, ids):
            text = user.read(path)
            # A problem may name what was asked for: the id that this user put into the path.
            assert other.canary not in text.replace(path, ""), f"{user.name} GET {path}: {text[:500]}"
            own += user.canary in text
            seen += 1
        user.receiver.until(2)
        for headers, body in user.receiver.got:
            assert other.canary.encode() not in body and other.canary not in json.dumps(headers)
        assert any(user.canary.encode() in body for _, body in user.receiver.got), "its own title is sent"
        for path, body in itertools.product(other.ids(), [{"decision": "deny"}]):
            for route in [f"/v1/notifications/{path}/approval", f"/v1/generations/{path}/approvals/call_1"]:
                assert server.refused(route, body, user.key) == 404, route
    server.kill()
    log = server.log.read_text(errors="replace")
    assert "canary-" not in log, "content in the log: " + log[log.index("canary-") - 300 :][:600]
    assert seen > 100 and own > 20, (seen, own)
    print(f"ok i13: {seen} reads, {own} with the reader's own canary, none with the other's; log clean")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        i13_no_byte_of_one_user_reaches_the_other(Path(place))
