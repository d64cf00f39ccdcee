"""A real server in a folder of its own."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
READY_SECONDS = 60
SETTINGS = """
[models.default]
kind = "demo"
pace = "1ms"
[webhooks]
allow_private = true
backoff = "200ms"
"""


class Server:
    def __init__(self, folder):
        self.program = program = Path(os.environ.get("OUTLAST_BIN", HERE / "../../target/debug/outlast")).resolve()
        if not program.is_file():
            sys.exit(f"{program} is missing; run `cargo build -p outlast`, or set OUTLAST_BIN")
        settings = folder / "outlast.toml"
        settings.write_text(SETTINGS)
        self.flags = ["--config", settings, "--data", folder / "data"]
        command = [program, "serve", *self.flags, "--listen", "127.0.0.1:0"]
        self.log = folder / "log"
        environment = {**os.environ, "OUTLAST_LOG": "debug"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        late = threading.Timer(READY_SECONDS, self.process.kill)
        late.start()
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                late.cancel()
                self.url = found.group()
                return
        sys.exit("the server did not become ready")

    def kill(self):
        self.process.kill()  # SIGKILL
        self.process.wait()

    def create_key(self, user, scopes):
        command = [self.program, "keys", "create", "--user", user, "--scopes", scopes, *self.flags]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def open(self, method, path, body=None, key=None, timeout=30):
        data = None if body is None else json.dumps(body).encode()
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout)

    def ask(self, method, path, body=None, key=None):
        with self.open(method, path, body, key) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def refused(self, path, body, key=None):
        """The status of a POST that is refused."""
        try:
            self.ask("POST", path, body, key)
        except urllib.error.HTTPError as error:
            return error.code
        return None
