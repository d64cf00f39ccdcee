/** Shared by these tests: a real server, programs, a shell, a browser. Whatever a test starts is stopped with it. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

export const ROOT = resolve(import.meta.dirname, "../..");
/** The folder of a new app with the packed client; see `run`. */
export const APP = process.env.APP ?? "";
const BINARY = resolve(process.env.OUTLAST_BIN ?? join(ROOT, "target/debug/outlast"));
const PATIENCE_MS = 25_000;

export const read = (path) => readFileSync(join(ROOT, path), "utf8");

/** The demo model answers with as many words as the question asks for. */
export const QUESTION = "Say what you do, in 400 words";

export async function until(what, probe) {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await probe();
    if (value) return value;
    assert.ok(Date.now() < deadline, `timed out: ${typeof what === "function" ? what() : what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const endings = new WeakMap();

/** Cleans up in reverse order, so that a folder is removed after the programs that write to it. */
export function atEnd(test, action) {
  if (!endings.has(test)) {
    endings.set(test, []);
    test.after(async () => {
      for (const end of endings.get(test).reverse()) await end();
    });
  }
  endings.get(test).push(action);
}

export function folder(test) {
  const path = mkdtempSync(join(tmpdir(), "outlast-example-"));
  atEnd(test, () => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Programs in separate process groups do not receive a Ctrl-C that stops the test. */
const groups = new Set();
process.on("exit", () => groups.forEach(endGroup));
for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => process.exit(1));

function endGroup(pid) {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // It has already ended.
  }
}

/** A program whose output can be read while it runs. */
export function program(test, command, args, { cwd = APP, env = {} } = {}) {
  // A separate process group, so that its child processes are stopped with it.
  const plain = { NO_PROXY: "*", no_proxy: "*", NO_COLOR: "1", FORCE_COLOR: undefined };
  const options = { cwd, env: { ...process.env, ...plain, ...env }, detached: true };
  const child = spawn(command, args, options);
  const self = { pid: child.pid, stdin: child.stdin, out: "", err: "", code: undefined };
  child.stdout.setEncoding("utf8").on("data", (text) => (self.out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (self.err += text));
  groups.add(child.pid);
  self.ended = new Promise((resolve) =>
    child.on("close", (code) => {
      groups.delete(child.pid);
      resolve((self.code = code));
    }),
  );
  self.signal = (name) => child.kill(name);
  self.kill = async () => {
    if (self.code !== undefined) return;
    endGroup(child.pid);
    await self.ended;
  };
  /** Waits for the end and returns the exit code. */
  self.end = async () => {
    await until(`${command} ${args[0]} ends`, () => self.code !== undefined);
    return self.code;
  };
  self.says = (pattern) =>
    until(() => `${command} ${args[0]} says ${pattern}; it said ${self.out}${self.err}`, () => {
      const found = pattern.exec(self.out + self.err);
      assert.ok(found ?? self.code === undefined, `${command} ended early: ${self.out}${self.err}`);
      return found;
    });
  atEnd(test, () => self.kill());
  return self;
}

/**
 * A server with the demo model on a free port, with its own data folder. The model is slow enough that an answer can
 * be interrupted in the middle, however busy the machine is.
 */
export async function outlast(test, { recovery = "safe", paceMs = 40 } = {}) {
  assert.ok(existsSync(BINARY), `${BINARY} is missing; run "cargo build -p outlast", or set OUTLAST_BIN`);
  const data = folder(test);
  const launch = async (listen, paceMs) => {
    const env = {
      OUTLAST_MODELS__DEFAULT__KIND: "demo",
      OUTLAST_MODELS__DEFAULT__PACE: `${paceMs}ms`,
      OUTLAST_RECOVERY__MODE: recovery,
      OUTLAST_LOG: "error",
    };
    const process = program(test, BINARY, ["serve", "--listen", listen, "--data", data], { env });
    return { process, url: (await process.says(/http:\/\/[\d.:]+/))[0] };
  };
  let running = await launch("127.0.0.1:0", paceMs);
  const { url } = running;
  const get = async (path) => (await fetch(url + path)).json();
  const latest = async () => get(`/v1/generations/${(await get("/v1/generations?limit=1")).data[0].id}`);
  return {
    url,
    get,
    /** Kills the server in the middle of an answer, and restarts it on the same address with a faster model. */
    async crash(paceMs = 8) {
      const { data } = await get("/v1/generations?limit=1");
      assert.equal(data[0].status, "running", "the crash is in the middle of the answer");
      await running.process.kill();
      running = await launch(url.slice("http://".length), paceMs);
    },
    latest,
    /** Waits until the last generation is in the middle of its answer. */
    speaks: () =>
      until("it speaks", async () => {
        const { status, chunksReceived } = await latest();
        return status === "running" && chunksReceived > 20;
      }),
    /** The stored answer of the last generation, once it has ended. */
    async answer(status = "completed") {
      const ended = await until("the generation ends", async () => {
        const { data } = await get("/v1/generations?limit=1");
        return ["completed", "cancelled", "error"].includes(data[0].status) && data[0];
      });
      assert.equal(ended.status, status);
      const { data } = await get(`/v1/conversations/${ended.conversationId}/messages`);
      const own = data.filter(({ role, generationId }) => role === "assistant" && generationId === ended.id);
      return own.map(({ content }) => content).join("");
    },
  };
}

/** A shell into which a test pastes commands. */
export function terminal(test) {
  const bash = program(test, "bash", [], { cwd: folder(test) });
  let pastes = 0;
  return {
    bash,
    /** Resolves to the output of the lines. */
    paste(lines) {
      const end = `[pasted ${++pastes}: `;
      const from = bash.out.length;
      bash.stdin.write(`${lines}\nprintf '%s%s]\\n' '${end}' "$?"\n`);
      const printed = until(() => `the shell has run ${lines}; it printed ${bash.out}${bash.err}`, () => {
        const at = bash.out.indexOf(end, from);
        return at >= 0 && bash.out.includes("]\n", at) && { text: bash.out.slice(from, at) };
      });
      return printed.then(({ text }) => text);
    },
    /** The output so far. */
    printed: () => bash.out,
    /** Sends Ctrl-C to the program in the shell, not to the shell. */
    interrupt: () => execFileSync("pkill", ["-INT", "-P", String(bash.pid)]),
  };
}

/** The code blocks of a page, each with its heading and the line of text before it. */
export function blocks(path) {
  const found = [];
  let heading = "";
  let before = "";
  let open = null;
  for (const line of read(path).split("\n")) {
    if (open !== null && line === "```") {
      found.push({ ...open, text: open.lines.map((line) => `${line}\n`).join("") });
      open = null;
    } else if (open !== null) open.lines.push(line);
    else if (line.startsWith("```")) open = { language: line.slice(3), heading, before, lines: [] };
    else if (/^#+ /.test(line)) heading = line.replace(/^#+ /, "");
    else if (line !== "") before = line;
  }
  assert.equal(open, null, `a block of ${path} is not closed`);
  return found;
}

/** The complete frames of a stream of events. */
export function frames(stream) {
  return stream
    .split("\n\n")
    .slice(0, -1)
    .filter((frame) => frame.startsWith("id: "));
}

export function launchBrowser() {
  const { chromium } = createRequire(join(ROOT, "ui/package.json"))("playwright-core");
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-proxy-server"],
  });
}

/** A page with its own storage. */
export async function open(test, browser, address) {
  const context = await browser.newContext();
  atEnd(test, () => context.close());
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(address);
  return {
    page,
    errors,
    button: (name) => page.getByRole("button", { name, exact: true }),
    text: (selector) => page.locator(selector).last().textContent(),
    sees: (selector, text) => page.locator(selector, { hasText: text }).last().waitFor(),
  };
}
