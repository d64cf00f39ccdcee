"""Webhooks and web push of a real server, checked with other people's libraries."""

import base64
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import http_ece
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from standardwebhooks.webhooks import Webhook

from receiver import Receiver
from server import Server

HERE = Path(__file__).parent
WAIT_SECONDS = 60


def until(what, probe):
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := probe()):
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.05)
    return found


def verified(secret, headers, body):
    """Checks a delivery with both libraries."""
    wanted = {name: value for name, value in headers.items() if name.startswith("webhook-")}
    Webhook(secret).verify(body, wanted)
    given = json.dumps({"secret": secret, "headers": wanted, "body": body.decode()})
    subprocess.run(["node", HERE / "verify.mjs"], input=given, text=True, check=True)
    tampered = json.dumps({"secret": secret, "headers": wanted, "body": body.decode() + " "})
    wrong = subprocess.run(["node", HERE / "verify.mjs"], input=tampered, text=True, capture_output=True)
    assert wrong.returncode != 0, "a changed body must not verify"
    return json.loads(body)


def b6_fails_three_times_then_once(folder):
    server = Server(folder)
    receiver = Receiver(500, 503, 429)
    webhook = server.ask("POST", "/v1/webhooks", {"url": receiver.url})
    started = server.ask("POST", "/v1/generations", {"content": "Hello"})
    receiver.until(1, accepted=True)
    assert len(receiver.got) == 4, len(receiver.got)
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    event = verified(webhook["secret"], *receiver.accepted[0])
    assert event["type"] == "generation.completed", event
    assert event["data"]["generationId"] == started["generationId"]
    path = f"/v1/webhooks/{webhook['id']}/deliveries"
    done = until("the record", lambda: [d for d in server.ask("GET", path)["data"] if d["state"] == "delivered"])
    assert [(one["attempts"], one["id"]) for one in done] == [(4, event["data"]["id"])]
    server.kill()


def b6_killed_between_attempts(folder):
    server = Server(folder)
    receiver = Receiver(500)
    webhook = server.ask("POST", "/v1/webhooks", {"url": receiver.url})
    server.ask("POST", "/v1/generations", {"content": "Hello"})
    receiver.until(1)
    server.kill()
    server = Server(folder)
    receiver.until(1, accepted=True)
    verified(webhook["secret"], *receiver.accepted[0])
    path = f"/v1/webhooks/{webhook['id']}/deliveries"
    until("the record", lambda: [d for d in server.ask("GET", path)["data"] if d["state"] == "delivered"])
    assert len(receiver.accepted) == 1
    assert len(server.ask("GET", "/v1/notifications")["data"]) == 1, "one cause, one notification"
    server.kill()


def b6_metadata_is_refused(folder):
    server = Server(folder)
    port = server.url.rsplit(":", 1)[1]
    for url in ["http://169.254.169.254/", "http://[fd00:ec2::254]/", f"http://127.0.0.1:{port}/", "ftp://a/"]:
        assert server.refused("/v1/webhooks", {"url": url}) == 422, url
    server.kill()


def unpadded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def padded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def b6_push_is_decrypted_by_rfc_8291(folder):
    server = Server(folder)
    receiver = Receiver()
    key = ec.generate_private_key(ec.SECP256R1())
    form = (serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    auth = os.urandom(16)
    keys = {"p256dh": unpadded(key.public_key().public_bytes(*form)), "auth": unpadded(auth)}
    server.ask("POST", "/v1/push", {"endpoint": receiver.url, "expirationTime": None, "keys": keys})
    started = server.ask("POST", "/v1/generations", {"content": "Hello"})
    receiver.until(1, accepted=True)
    headers, body = receiver.accepted[0]
    assert headers["content-encoding"] == "aes128gcm" and int(headers["ttl"]) > 0
    message = json.loads(http_ece.decrypt(body, private_key=key, auth_secret=auth, version="aes128gcm"))
    assert message["data"]["generationId"] == started["generationId"], message
    check_vapid(headers["authorization"], receiver.url, server.ask("GET", "/v1/push")["publicKey"])
    server.kill()


def check_vapid(authorization, endpoint, public_key):
    """RFC 8292: a token of ES256 for the push service, signed by the key that browsers subscribed with."""
    token, key = re.fullmatch(r"vapid t=([^,]+), k=(\S+)", authorization).groups()
    assert key == public_key
    signed, _, signature = token.rpartition(".")
    claims = json.loads(padded(signed.split(".")[1]))
    assert claims["aud"] == endpoint.removesuffix("/hook") and claims["sub"].startswith("mailto:")
    assert time.time() < claims["exp"] <= time.time() + 24 * 60 * 60
    raw = padded(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), padded(key))
    point.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))


def main():
    proofs = [
        b6_fails_three_times_then_once,
        b6_killed_between_attempts,
        b6_metadata_is_refused,
        b6_push_is_decrypted_by_rfc_8291,
    ]
    for proof in proofs:
        with tempfile.TemporaryDirectory() as folder:
            proof(Path(folder))
        print(f"ok {proof.__name__}")


if __name__ == "__main__":
    main()
