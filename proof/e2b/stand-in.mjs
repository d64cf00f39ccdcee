// A stand-in for E2B on this machine: the control API, and the proxy to the server inside each sandbox (envd.mjs).
// A sandbox is a folder behind bubblewrap, with one process namespace that can be frozen and killed as a whole.
//
//   node stand-in.mjs [PROGRAM]    prints its URL; PROGRAM is `outlast` in the template "with-outlast"
//
// Each API key is a team of its own, so that tests do not see each other. `POST /_misbehave` with a key makes calls of
// that team fail (see `misbehaviour`), and `GET /_calls` lists what the team has called.

import { spawn } from "node:child_process";
import crypto from "node:crypto";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { HOME, bodyOf, fail, json } from "./wire.mjs";

const PROGRAM = process.argv[2];
const TEMPLATES = ["base", ...(PROGRAM ? ["with-outlast"] : [])];
const HERE = import.meta.dirname;
const ROOT = fs.mkdtempSync(path.join(os.tmpdir(), "e2b-"));
const CALLS_KEPT = 10_000;

const sandboxes = new Map();
const teams = new Map();

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function team(key) {
  if (!teams.has(key)) teams.set(key, { faults: [], calls: [] });
  return teams.get(key);
}

/** The fault that a team asked for at this place, if any: `{at, times, status, message, retryAfter, hang, lose, drop}`. */
function misbehaviour(key, at) {
  const fault = team(key).faults.find((fault) => fault.at === at && fault.times > 0);
  if (fault) fault.times -= 1;
  return fault;
}

// The walls: the system's programs, a writable rest, no network.
function walls(folder) {
  const binds = [];
  for (const name of ["bin", "sbin", "lib", "lib32", "lib64", "libx32"]) {
    const stat = fs.lstatSync(`/${name}`, { throwIfNoEntry: false });
    if (stat?.isSymbolicLink()) fs.symlinkSync(fs.readlinkSync(`/${name}`), `${folder}/${name}`);
    else if (stat) binds.push("--ro-bind", `/${name}`, `/${name}`);
  }
  for (const file of ["/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl"]) binds.push("--ro-bind-try", file, file);
  const node = path.dirname(path.dirname(process.execPath));
  if (!node.startsWith("/usr")) binds.push("--ro-bind", node, node);
  return ["--bind", folder, "/", "--ro-bind", "/usr", "/usr", ...binds, "--proc", "/proc", "--dev", "/dev"];
}

async function launch(sandbox) {
  const folder = sandbox.folder;
  for (const name of ["etc", "run", "tmp", "home/user", "opt/envd", "opt/bin", "proc", "dev", "usr", "var/lib"]) fs.mkdirSync(`${folder}/${name}`, { recursive: true });
  fs.writeFileSync(`${folder}/etc/passwd`, `root:x:0:0::/:/bin/bash\nuser:x:1000:1000::${HOME}:/bin/bash\n`);
  fs.writeFileSync(`${folder}/etc/group`, "root:x:0:\nuser:x:1000:\n");
  const args = ["--die-with-parent", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--clearenv", "--info-fd", "3", ...walls(folder), "--ro-bind", HERE, "/opt/envd"];
  if (sandbox.templateID === "with-outlast") args.push("--ro-bind", PROGRAM, "/opt/bin/outlast");
  args.push("--setenv", "ENVS", JSON.stringify(sandbox.envVars), "--chdir", HOME, process.execPath, "/opt/envd/envd.mjs");
  const bwrap = spawn("bwrap", args, { stdio: ["ignore", "ignore", "inherit", "pipe"] });
  bwrap.once("exit", () => (sandbox.dead = true));
  sandbox.bwrap = bwrap;
  let told = "";
  for await (const piece of bwrap.stdio[3]) {
    told += piece;
    if (told.includes("}")) break;
  }
  sandbox.init = JSON.parse(told || "{}")["child-pid"];
  for (let tries = 0; !fs.existsSync(`${folder}/run/envd.sock`); tries += 1) {
    if (sandbox.dead || tries > 3_000) throw new Error("the server inside the sandbox did not start");
    await wait(10);
  }
}

/** All processes of a sandbox, found by their namespace. */
function pids(sandbox) {
  const namespace = (pid) => {
    try {
      return fs.readlinkSync(`/proc/${pid}/ns/pid`);
    } catch {
      return null; // it has ended
    }
  };
  const own = namespace(sandbox.init);
  return own ? fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name) && namespace(name) === own) : [];
}

function signal(sandbox, name) {
  const seen = new Set();
  for (;;) {
    const found = pids(sandbox).filter((pid) => !seen.has(pid));
    if (found.length === 0) return;
    for (const pid of found) {
      seen.add(pid);
      try {
        process.kill(Number(pid), name);
      } catch {} // it has ended
    }
  }
}

function pause(sandbox) {
  clearTimeout(sandbox.timer);
  sandbox.state = "paused";
  sandbox.endAt = new Date();
  signal(sandbox, "SIGSTOP");
  for (const socket of sandbox.sockets) socket.destroy(); // every pause breaks what is open
}

function resume(sandbox) {
  const fault = misbehaviour(sandbox.key, "resume");
  for (const name of fault?.lose ?? []) fs.rmSync(`${sandbox.folder}/${name}`, { recursive: true, force: true });
  sandbox.state = "running";
  signal(sandbox, "SIGCONT");
}

function kill(sandbox) {
  clearTimeout(sandbox.timer);
  sandboxes.delete(sandbox.sandboxID);
  sandbox.agent.destroy();
  for (const socket of sandbox.sockets) socket.destroy();
  sandbox.bwrap?.kill("SIGKILL");
  const remove = () => fs.rmSync(sandbox.folder, { recursive: true, force: true, maxRetries: 10 });
  if (sandbox.dead) remove();
  else sandbox.bwrap?.once("exit", () => setTimeout(remove, 100));
}

function live(sandbox, seconds, mayShorten) {
  const endAt = new Date(Date.now() + seconds * 1_000);
  if (!mayShorten && sandbox.endAt > endAt) return;
  sandbox.endAt = endAt;
  clearTimeout(sandbox.timer);
  sandbox.timer = setTimeout(() => (sandbox.autoPause ? pause(sandbox) : kill(sandbox)), Math.min(seconds * 1_000, 2 ** 31 - 1));
}

const brief = ({ templateID, sandboxID, token }) => ({
  templateID, sandboxID, clientID: "stand-in", envdVersion: "0.6.13", envdAccessToken: token, domain: null, trafficAccessToken: null, alias: templateID,
});

const detail = (sandbox) => ({
  ...brief(sandbox), startedAt: sandbox.startedAt.toISOString(), endAt: sandbox.endAt.toISOString(), cpuCount: 2, memoryMB: 512,
  diskSizeMB: 1024, state: sandbox.state, metadata: sandbox.metadata,
  lifecycle: { autoResume: false, onTimeout: sandbox.autoPause ? "pause" : "kill" },
});

async function create(request, response, { key, body, isV2 }) {
  const { templateID, timeout = isV2 ? 300 : 15, metadata = {}, envVars = {}, autoPause = false } = body;
  if (!TEMPLATES.includes(templateID)) return fail(response, 404, `template '${templateID}' not found`);
  const sandboxID = `i${crypto.randomBytes(15).toString("base64url").toLowerCase().replace(/[^a-z0-9]/g, "0").padEnd(20, "0").slice(0, 20)}`;
  const folder = path.join(ROOT, sandboxID);
  fs.mkdirSync(folder);
  const token = crypto.randomBytes(16).toString("hex");
  const sandbox = { key, templateID, sandboxID, folder, token, metadata, envVars, autoPause, state: "running", startedAt: new Date(), endAt: new Date(0), sockets: new Set(), agent: new http.Agent({ keepAlive: true }) };
  sandboxes.set(sandboxID, sandbox);
  await launch(sandbox);
  live(sandbox, timeout, true);
  if (misbehaviour(key, "created")?.hang) return; // made, but nobody hears of it
  json(response, 201, brief(sandbox));
}

function list(request, response, { key, url }) {
  const states = url.searchParams.get("state")?.split(",") ?? ["running", "paused"];
  const wanted = new URLSearchParams(url.searchParams.get("metadata") ?? "");
  const found = [...sandboxes.values()].filter((sandbox) => sandbox.key === key && states.includes(sandbox.state));
  const matching = found.filter(({ metadata }) => [...wanted].every(([name, value]) => metadata[name] === decodeURIComponent(value)));
  json(response, 200, matching.map(detail));
}

const one = {
  get: (sandbox, response) => json(response, 200, detail(sandbox)),
  kill: (sandbox, response) => {
    kill(sandbox);
    response.writeHead(204).end();
  },
  pause: (sandbox, response) => {
    if (sandbox.state === "paused") return fail(response, 409, `Error pausing sandbox - sandbox '${sandbox.sandboxID}' is already paused`);
    pause(sandbox);
    response.writeHead(204).end();
  },
  connect: (sandbox, response, { body }) => {
    const status = sandbox.state === "paused" ? 201 : 200;
    if (status === 201) {
      resume(sandbox);
      sandbox.endAt = new Date(0);
    }
    live(sandbox, body.timeout ?? 300, false);
    json(response, status, brief(sandbox));
  },
  timeout: (sandbox, response, { body }) => {
    live(sandbox, body.timeout, true);
    response.writeHead(204).end();
  },
};

async function control(request, response, url) {
  const key = request.headers["x-api-key"];
  const isV2 = url.pathname.startsWith("/v2/");
  const [, id, action] = /^\/sandboxes(?:\/([^/]+))?(?:\/([^/]+))?$/.exec(url.pathname.replace(/^\/v2/, "")) ?? [null];
  const at = id ? (action ?? (request.method === "DELETE" ? "kill" : "get")) : request.method === "POST" ? "create" : "list";
  const text = (await bodyOf(request)).toString();
  const body = text ? JSON.parse(text) : {};
  team(key).calls.push(`${request.method} ${url.pathname}`);
  team(key).calls.splice(0, team(key).calls.length - CALLS_KEPT);
  const fault = misbehaviour(key, isV2 ? at : `${at}.v1`) ?? misbehaviour(key, at);
  if (fault?.hang) return;
  if (fault) return fail(response, fault.status, fault.message ?? "as asked", fault.errorCode && { error_code: fault.errorCode }, fault.retryAfter && { "retry-after": fault.retryAfter });
  if (at === "create") return create(request, response, { key, body, isV2 });
  if (at === "list") return list(request, response, { key, url });
  const sandbox = sandboxes.get(id);
  if (!sandbox || sandbox.key !== key) return fail(response, 404, `Sandbox "${id}" doesn't exist or you don't have access to it`);
  if (!one[at]) return fail(response, 404, "not found");
  one[at](sandbox, response, { body });
}

function proxy(request, response, url) {
  const sandbox = sandboxes.get(request.headers["e2b-sandbox-id"]);
  if (!sandbox || sandbox.state !== "running" || sandbox.dead) {
    return fail(response, 502, "The sandbox was not found", { sandboxId: request.headers["e2b-sandbox-id"] });
  }
  team(sandbox.key).calls.push(`envd ${request.method} ${url.pathname}`);
  if (url.pathname !== "/health" && request.headers["x-access-token"] !== sandbox.token) return fail(response, 401, "unauthorized access, please provide a valid access token");
  const fault = misbehaviour(sandbox.key, `envd ${url.pathname.split("/").at(-1)}`);
  if (fault?.hang) return request.resume();
  if (fault?.status) return fail(response, fault.status, fault.message ?? "as asked");
  const { connection, ...kept } = request.headers;
  const headers = { ...kept, ...(fault?.drop && { "x-drop": "1" }) };
  const inner = http.request({ socketPath: `${sandbox.folder}/run/envd.sock`, method: request.method, path: request.url, headers, agent: sandbox.agent });
  sandbox.sockets.add(request.socket);
  response.on("close", () => {
    sandbox.sockets.delete(request.socket);
    inner.destroy();
  });
  inner.on("response", (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.on("error", () => response.destroy()).pipe(response);
  });
  inner.on("error", () => (response.headersSent ? response.destroy() : fail(response, 502, "The sandbox was not found")));
  request.pipe(inner);
}

const server = http.createServer({ requestTimeout: 0, keepAliveTimeout: 60_000 }, async (request, response) => {
  const url = new URL(request.url, "http://e2b");
  const key = request.headers["x-api-key"];
  try {
    if (request.headers["e2b-sandbox-id"]) return proxy(request, response, url);
    if (!key) return fail(response, 401, "API key is missing");
    if (url.pathname === "/_calls") return json(response, 200, team(key).calls);
    if (url.pathname === "/_misbehave") {
      team(key).faults.push({ times: 1, ...JSON.parse(await bodyOf(request)) });
      return response.writeHead(204).end();
    }
    await control(request, response, url);
  } catch (error) {
    console.error(error);
    if (!response.headersSent) fail(response, 500, error.message);
  }
});

function stop() {
  for (const sandbox of sandboxes.values()) sandbox.bwrap?.kill("SIGKILL");
  fs.rmSync(ROOT, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  process.exit(0);
}
for (const name of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(name, stop);
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
