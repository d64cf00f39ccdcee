"""Starts upstreams, a server and a proxy that cuts connections, then runs the tests of all libraries."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from cut import Cut
from toolsmith import Toolsmith

HERE = Path(__file__).parent
BUILT = HERE / "../../target/debug"
READY_SECONDS = 30

SETTINGS = """
[models.default]
kind = "openai"
base_url = "{scripted}/v1"
model = "scripted"
[models.tools]
kind = "openai"
base_url = "{toolsmith}/v1"
model = "toolsmith"
[models.demo]
kind = "demo"
pace = "1ms"
[retry]
backoff = "40ms"
"""


def program(variable, name):
    path = Path(os.environ.get(variable, BUILT / name)).resolve()
    if not path.is_file():
        sys.exit(f"{path} is missing; run `cargo build -p outlast -p outlast-bench`, or set {variable}")
    return path


class Running:
    """A program that prints its address. Stopped at the end."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        # Do not wait forever for a program that never becomes ready.
        late = threading.Timer(READY_SECONDS, self.process.kill)
        late.start()
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                late.cancel()
                self.url = found.group()
                return
        sys.exit(f"{command[0]} did not become ready")

    def end(self):
        self.process.kill()
        self.process.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def main():
    with tempfile.TemporaryDirectory() as folder:
        toolsmith = Toolsmith()
        scripted = Running(program("OUTLAST_BENCH_BIN", "outlast-bench"), "upstream", "--listen", "127.0.0.1:0")
        settings = Path(folder) / "outlast.toml"
        settings.write_text(SETTINGS.format(scripted=scripted.url, toolsmith=toolsmith.url))
        listen = f"127.0.0.1:{free_port()}"
        outlast = program("OUTLAST_BIN", "outlast")
        server = Running(outlast, "serve", "--config", settings, "--data", f"{folder}/data", "--listen", listen)
        cut = Cut(listen)
        stage = {"OUTLAST_URL": server.url, "CUT_URL": cut.url, "TOOLSMITH_URL": toolsmith.url}
        # No request may leave this machine, whatever proxies the environment names.
        environment = {**os.environ, **stage, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        node = [HERE / "node_modules/.bin/node", "--test"]
        tests = [HERE / "sdk.test.mjs", HERE / "inngest.test.mjs"]
        proofs = [*([*node, test] for test in tests), [sys.executable, HERE / "sdk_test.py"]]
        try:
            failed = [proof for proof in proofs if subprocess.run(proof, env=environment).returncode != 0]
        finally:
            server.end()
            scripted.end()
    if failed:
        sys.exit(f"failed: {[str(proof[-1]) for proof in failed]}")
    print("all libraries agree with Outlast")


if __name__ == "__main__":
    main()
