"""One run of E2B's SDK for Python, as its users write it."""

import json
import os
import urllib.request

from e2b import CommandExitException, Sandbox, SandboxQuery, SandboxState

RELEASE = "py-" + os.environ["RELEASE"]
HOME = os.path.join(os.sep, "home", "user")
METADATA = {"generation": f"g {os.getpid()}&="}


def say(call, outcome="ok"):
    print(f"{RELEASE:9} {call:34} {outcome}", flush=True)


def refused(call, name, work):
    try:
        work()
    except Exception as error:  # noqa: BLE001: the class is what is checked
        assert type(error).__name__ == name, repr(error)
        say(call, name)
        return
    raise AssertionError(f"{call} did not fail")


sandbox = Sandbox.create(
    "base", timeout=300, metadata=METADATA, envs={"FOO": "bar"}, lifecycle={"on_timeout": "pause"}
)
say("Sandbox.create")

done = sandbox.commands.run("echo hi $FOO; echo err >&2")
assert (done.exit_code, done.stdout, done.stderr) == (0, "hi bar\n", "err\n"), done
say("commands.run")
try:
    sandbox.commands.run("echo out; exit 3")
    raise AssertionError("it did not fail")
except CommandExitException as error:
    assert (error.exit_code, error.stdout) == (3, "out\n")
    say("commands.run, exit 3", "CommandExitException")
refused("commands.run in a missing folder", "InvalidArgumentException", lambda: sandbox.commands.run("pwd", cwd="/missing"))
refused("commands.run, timeout", "TimeoutException", lambda: sandbox.commands.run("sleep 5", timeout=0.6))

cat = sandbox.commands.run("cat", background=True, stdin=True)
sandbox.commands.send_stdin(cat.pid, "hello\n")
sandbox.commands.close_stdin(cat.pid)
assert cat.wait().stdout == "hello\n"
say("commands.send_stdin, close_stdin")

sleeping = sandbox.commands.run("sleep 30", background=True)
assert sleeping.pid in [found.pid for found in sandbox.commands.list()]
assert sleeping.kill() is True
say("commands.list, kill")

waiting = sandbox.commands.run("until [ -e go ]; do sleep 0.05; done; echo later", background=True)
waiting.disconnect()
again = sandbox.commands.connect(waiting.pid)
sandbox.files.write("go", "")
assert again.wait().stdout == "later\n"
say("commands.connect")
refused("commands.connect to nothing", "NotFoundException", lambda: sandbox.commands.connect(999_999))

sandbox.files.write(HOME + "/a.txt", "one")
sandbox.files.write_files([{"path": "/tmp/x/b.txt", "data": "two"}, {"path": "c.txt", "data": "three"}])
read = [sandbox.files.read(name) for name in ("a.txt", "/tmp/x/b.txt", HOME + "/c.txt")]
assert read == ["one", "two", "three"], read
say("files.write, read")
assert (sandbox.files.make_dir("folder"), sandbox.files.make_dir("folder")) == (True, False)
assert "folder" in [found.name for found in sandbox.files.list(HOME)]
assert (sandbox.files.exists("a.txt"), sandbox.files.exists("nope")) == (True, False)
say("files.list, exists, make_dir")
sandbox.files.rename("a.txt", "folder/b.txt")
assert sandbox.files.read("folder/b.txt") == "one"
sandbox.files.remove("folder")
assert not sandbox.files.exists("folder")
say("files.rename, remove")
refused("files.read of nothing", "FileNotFoundException", lambda: sandbox.files.read("/nope"))

sandbox.set_timeout(200)
say("set_timeout")
assert (sandbox.pause(), sandbox.pause()) == (True, False)
say("pause, twice")
refused("commands.run while paused", "SandboxNotRunningException", lambda: sandbox.commands.run("true"))
assert sandbox.is_running() is False
say("is_running while paused")
pages = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED], metadata=METADATA))
assert [found.sandbox_id for found in pages.next_items()] == [sandbox.sandbox_id]
assert pages.has_next is False
say("Sandbox.list")
sandbox = Sandbox.connect(sandbox.sandbox_id)
assert sandbox.commands.run("cat c.txt").stdout == "three"
say("Sandbox.connect, which resumes")
assert (sandbox.kill(), sandbox.kill()) == (True, False)
say("kill, twice")
refused("Sandbox.connect to a dead one", "SandboxNotFoundException", lambda: Sandbox.connect(sandbox.sandbox_id))

fault = json.dumps({"at": "create", "status": 429, "message": "too many sandboxes", "times": 9}).encode()
request = urllib.request.Request(os.environ["E2B_API_URL"] + "/_misbehave", fault, {"X-API-Key": os.environ["E2B_API_KEY"]})
urllib.request.urlopen(request).close()
refused("Sandbox.create over the limit", "RateLimitException", lambda: Sandbox.create("base"))
