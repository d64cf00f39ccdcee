// One run of E2B's SDK for Node, as its users write it. RELEASE names the installed release.

import assert from "node:assert/strict";
import { HOME } from "./wire.mjs";

const RELEASE = process.env.RELEASE;
const { CommandExitError, FileNotFoundError, InvalidArgumentError, NotFoundError, RateLimitError, Sandbox, SandboxNotFoundError, TimeoutError } = await import(RELEASE);

const say = (call, outcome) => console.log(`${RELEASE.padEnd(9)} ${call.padEnd(34)} ${outcome}`);

async function check(call, work) {
  const outcome = await work();
  say(call, outcome ?? "ok");
}

/** What it failed with, which must be of this class. */
async function refused(work, Class) {
  const error = await work.then(() => assert.fail("it did not fail"), (error) => error);
  assert.equal(error.constructor.name, Class.name, String(error));
  return Class.name;
}

const metadata = { generation: `g ${process.pid}&=` };
let sandbox;
await check("Sandbox.create", async () => {
  sandbox = await Sandbox.create("base", { timeoutMs: 300_000, metadata, envs: { FOO: "bar" }, lifecycle: { onTimeout: "pause", autoResume: false } });
  assert.equal((await sandbox.getInfo()).lifecycle.onTimeout, "pause");
});
await check("commands.run", async () => {
  const { exitCode, stdout, stderr } = await sandbox.commands.run("echo hi $FOO; echo err >&2");
  assert.deepEqual([exitCode, stdout, stderr], [0, "hi bar\n", "err\n"]);
});
await check("commands.run, exit 3", async () => {
  const error = await sandbox.commands.run("echo out; exit 3").catch((error) => error);
  assert.ok(error instanceof CommandExitError);
  assert.deepEqual([error.exitCode, error.stdout], [3, "out\n"]);
  return "CommandExitError";
});
await check("commands.run in a missing folder", () => refused(sandbox.commands.run("pwd", { cwd: "/missing" }), InvalidArgumentError));
await check("commands.run, timeout", () => refused(sandbox.commands.run("sleep 5", { timeoutMs: 600 }), TimeoutError));
await check("commands.sendStdin, closeStdin", async () => {
  const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
  await sandbox.commands.sendStdin(cat.pid, "hello\n");
  await sandbox.commands.closeStdin(cat.pid);
  assert.equal((await cat.wait()).stdout, "hello\n");
});
await check("commands.list, kill", async () => {
  const sleeping = await sandbox.commands.run("sleep 30", { background: true });
  assert.ok((await sandbox.commands.list()).some(({ pid }) => pid === sleeping.pid));
  assert.equal(await sleeping.kill(), true);
  const error = await sleeping.wait().catch((error) => error);
  assert.equal(error.exitCode, -1);
});
await check("commands.connect", async () => {
  const counting = await sandbox.commands.run("until [ -e go ]; do sleep 0.05; done; echo later", { background: true });
  await counting.disconnect();
  const again = await sandbox.commands.connect(counting.pid);
  await sandbox.files.write("go", "");
  assert.equal((await again.wait()).stdout, "later\n");
});
await check("commands.connect to nothing", () => refused(sandbox.commands.connect(999_999), NotFoundError));
await check("files.write, read", async () => {
  await sandbox.files.write(`${HOME}/a.txt`, "one");
  await sandbox.files.write([{ path: "/tmp/x/b.txt", data: "two" }, { path: "c.txt", data: "three" }]);
  assert.equal(await sandbox.files.read("a.txt"), "one");
  assert.equal(await sandbox.files.read("/tmp/x/b.txt"), "two");
  assert.equal(await sandbox.files.read(`${HOME}/c.txt`), "three");
});
await check("files.list, exists, makeDir", async () => {
  assert.equal(await sandbox.files.makeDir("folder"), true);
  assert.equal(await sandbox.files.makeDir("folder"), false);
  const names = (await sandbox.files.list(HOME)).map(({ name }) => name);
  assert.ok(names.includes("folder") && names.includes("a.txt"), names.join());
  assert.deepEqual([await sandbox.files.exists("a.txt"), await sandbox.files.exists("nope")], [true, false]);
});
await check("files.rename, remove", async () => {
  await sandbox.files.rename("a.txt", "folder/b.txt");
  assert.equal(await sandbox.files.read("folder/b.txt"), "one");
  await sandbox.files.remove("folder");
  assert.equal(await sandbox.files.exists("folder"), false);
});
await check("files.read of nothing", () => refused(sandbox.files.read("/nope"), FileNotFoundError));
await check("setTimeout", () => sandbox.setTimeout(200_000));
await check("pause, twice", async () => {
  assert.deepEqual([await sandbox.pause(), await sandbox.pause()], [true, false]);
});
await check("commands.run while paused", () => refused(sandbox.commands.run("true"), SandboxNotFoundError));
await check("isRunning while paused", async () => assert.equal(await sandbox.isRunning(), false));
await check("Sandbox.list", async () => {
  const pages = Sandbox.list({ query: { state: ["paused"], metadata } });
  assert.deepEqual((await pages.nextItems()).map(({ sandboxId }) => sandboxId), [sandbox.sandboxId]);
  assert.equal(pages.hasNext, false);
});
await check("Sandbox.connect, which resumes", async () => {
  sandbox = await Sandbox.connect(sandbox.sandboxId);
  assert.equal((await sandbox.commands.run("cat c.txt")).stdout, "three");
});
await check("kill, twice", async () => {
  assert.deepEqual([await sandbox.kill(), await sandbox.kill()], [true, false]);
});
await check("Sandbox.connect to a dead one", () => refused(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError));
await check("Sandbox.create over the limit", async () => {
  const headers = { "X-API-Key": process.env.E2B_API_KEY };
  const body = JSON.stringify({ at: "create", status: 429, message: "too many sandboxes" });
  await fetch(`${process.env.E2B_API_URL}/_misbehave`, { method: "POST", headers, body });
  return refused(Sandbox.create("base"), RateLimitError);
});
