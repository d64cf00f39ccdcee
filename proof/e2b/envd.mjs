// The server inside a sandbox of the stand-in, as E2B's envd is inside theirs: it runs programs and moves files.
// It listens on a socket in the sandbox's folder; only the stand-in connects to it.

import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import zlib from "node:zlib";
import { HOME, bodyOf, fail, json, partsOf } from "./wire.mjs";

/** How long the end of a program can still be asked for. */
const END_KEPT_MS = 30_000;
const ENVIRONMENT = { HOME, USER: "user", LANG: "C.UTF-8", PATH: "/opt/bin:/usr/local/bin:/usr/bin:/bin", ...JSON.parse(process.env.ENVS ?? "{}") };
const STATUS = { invalid_argument: 400, not_found: 404, already_exists: 409, unimplemented: 501, internal: 500 };
const SIGNALS = { SIGNAL_SIGKILL: "SIGKILL", SIGNAL_SIGTERM: "SIGTERM" };

/** Programs by pid: those that run, and for a while those that have ended. */
const programs = new Map();

class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

function frame(flags, value) {
  const payload = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(5);
  head[0] = flags;
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

/** Answers with events until the program ends or the client goes away. Output is never kept for later. */
function follow(program, response, drop) {
  response.writeHead(200, { "content-type": "application/connect+json" });
  response.write(frame(0, { event: { start: { pid: program.pid } } }));
  const follower = (event) => {
    if (drop && event.data) return; // as asked: somebody was not fast enough
    response.write(frame(0, { event }));
    if (event.end) response.end(frame(2, {}));
  };
  if (program.end) return follower({ end: program.end });
  program.followers.add(follower);
  response.on("close", () => program.followers.delete(follower));
}

function tell(program, event) {
  for (const follower of program.followers) follower(event);
}

function start(request, timeoutMs) {
  const { cmd, args = [], envs = {}, cwd = HOME } = request.process;
  if (!fs.existsSync(cwd)) throw new Refused("invalid_argument", `cwd '${cwd}' does not exist`);
  const stdio = [request.stdin === false ? "ignore" : "pipe", "pipe", "pipe"];
  const child = spawn(cmd, args, { cwd, env: { ...ENVIRONMENT, ...envs }, stdio, detached: true });
  const program = { pid: child.pid, child, tag: request.tag, config: request.process, followers: new Set(), end: null };
  return new Promise((resolve, reject) => {
    child.once("error", (error) => reject(new Refused("invalid_argument", error.message)));
    child.once("spawn", () => {
      programs.set(child.pid, program);
      for (const stream of ["stdout", "stderr"]) {
        child[stream].on("data", (bytes) => tell(program, { data: { [stream]: bytes.toString("base64") } }));
      }
      child.stdin?.on("error", () => {}); // the program closed it
      const timer = timeoutMs > 0 && setTimeout(() => child.kill("SIGKILL"), timeoutMs);
      child.once("close", (code, signal) => {
        clearTimeout(timer);
        const status = signal ? `signal: ${signal === "SIGKILL" ? "killed" : "terminated"}` : `exit status ${code}`;
        program.end = signal ? { exitCode: -1, status, error: status } : { ...(code && { exitCode: code }), exited: true, status };
        tell(program, { end: program.end });
        setTimeout(() => programs.delete(program.pid), END_KEPT_MS).unref();
      });
      resolve(program);
    });
  });
}

function selected(selector) {
  const program = [...programs.values()].find(({ pid, tag }) => pid === selector.pid || (selector.tag && tag === selector.tag));
  if (!program) throw new Refused("not_found", `process with pid ${selector.pid ?? selector.tag} not found`);
  return program;
}

function running(selector) {
  const program = selected(selector);
  if (program.end) throw new Refused("not_found", `process with pid ${program.pid} not found`);
  return program;
}

const resolve = (file) => path.resolve(HOME, file.replace(/^~(?=\/|$)/, HOME));

function existing(file) {
  const stat = fs.lstatSync(file, { throwIfNoEntry: false });
  if (!stat) throw new Refused("not_found", `path '${file}' does not exist`);
  return stat;
}

function entry(file) {
  const stat = existing(file);
  const type = stat.isSymbolicLink() ? "SYMLINK" : stat.isDirectory() ? "DIRECTORY" : "FILE";
  const letters = "rwxrwxrwx";
  const bits = [...letters].map((letter, place) => (stat.mode & (0o400 >> place) ? letter : "-")).join("");
  return {
    name: path.basename(file), type: `FILE_TYPE_${type}`, path: file, size: String(stat.size), mode: stat.mode & 0o7777,
    permissions: (type === "DIRECTORY" ? "d" : "-") + bits, owner: "user", group: "user",
    modifiedTime: stat.mtime.toISOString(),
  };
}

function listed(folder, depth) {
  if (!existing(folder).isDirectory()) throw new Refused("invalid_argument", `path is not a directory: ${folder}`);
  return fs.readdirSync(folder).sort().flatMap((name) => {
    const found = entry(path.join(folder, name));
    const below = depth > 1 && found.type === "FILE_TYPE_DIRECTORY" ? listed(found.path, depth - 1) : [];
    return [found, ...below];
  });
}

const unary = {
  "process.Process/List": () => ({
    processes: [...programs.values()].filter(({ end }) => !end).map(({ pid, tag, config }) => ({ pid, tag, config })),
  }),
  "process.Process/SendInput": ({ process, input }) => {
    running(process).child.stdin.write(Buffer.from(input.stdin ?? input.pty ?? "", "base64"));
    return {};
  },
  "process.Process/CloseStdin": ({ process }) => {
    running(process).child.stdin.end();
    return {};
  },
  "process.Process/SendSignal": ({ process, signal }) => {
    running(process).child.kill(SIGNALS[signal]);
    return {};
  },
  "filesystem.Filesystem/Stat": ({ path }) => ({ entry: entry(resolve(path)) }),
  "filesystem.Filesystem/ListDir": ({ path, depth }) => ({ entries: listed(resolve(path), depth || 1) }),
  "filesystem.Filesystem/MakeDir": ({ path }) => {
    const folder = resolve(path);
    if (fs.existsSync(folder)) throw new Refused("already_exists", `directory already exists: ${folder}`);
    fs.mkdirSync(folder, { recursive: true });
    return { entry: entry(folder) };
  },
  "filesystem.Filesystem/Move": ({ source, destination }) => {
    existing(resolve(source));
    fs.renameSync(resolve(source), resolve(destination));
    return { entry: entry(resolve(destination)) };
  },
  "filesystem.Filesystem/Remove": ({ path }) => {
    fs.rmSync(resolve(path), { recursive: true, force: true });
    return {};
  },
};

async function streaming(method, request, response) {
  try {
    const message = JSON.parse((await bodyOf(request)).subarray(5));
    if (method === "process.Process/Start") follow(await start(message, Number(request.headers["connect-timeout-ms"] ?? 0)), response, request.headers["x-drop"]);
    else if (method === "process.Process/Connect") follow(selected(message.process), response);
    else throw new Refused("unimplemented", `${method} is not part of the stand-in`);
  } catch (error) {
    response.writeHead(200, { "content-type": "application/connect+json" });
    response.end(frame(2, { error: { code: error.code in STATUS ? error.code : "internal", message: error.message } }));
  }
}

function read(file, request, response) {
  const stat = fs.statSync(file, { throwIfNoEntry: false });
  if (!stat) return fail(response, 404, `path '${file}' does not exist`);
  if (!stat.isFile()) return fail(response, 400, `path '${file}' is a directory`);
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  const first = range ? Number(range[1]) : 0;
  const last = Math.min(range?.[2] ? Number(range[2]) : stat.size - 1, stat.size - 1);
  if (range && first >= stat.size) return fail(response, 416, "invalid range: failed to overlap");
  response.writeHead(range ? 206 : 200, { "content-type": "application/octet-stream", "content-length": last - first + 1 });
  if (last < first) return response.end();
  fs.createReadStream(file, { start: first, end: last }).pipe(response);
}

async function write(target, request, response) {
  const written = [];
  const place = (file) => {
    fs.mkdirSync(path.dirname(file), { recursive: true });
    written.push({ path: file, name: path.basename(file), type: "file" });
    return file;
  };
  if ((request.headers["content-type"] ?? "").startsWith("multipart/form-data")) {
    for (const { filename, content } of partsOf(await bodyOf(request), request.headers["content-type"])) {
      fs.writeFileSync(place(resolve(target ?? filename)), content);
    }
  } else {
    const unpack = request.headers["content-encoding"] === "gzip" ? [zlib.createGunzip()] : [];
    await pipeline(request, ...unpack, fs.createWriteStream(place(resolve(target))));
  }
  json(response, 200, written);
}

const server = http.createServer({ requestTimeout: 0 }, async (request, response) => {
  const url = new URL(request.url, "http://envd");
  const method = url.pathname.slice(1);
  try {
    if (method === "health") return response.writeHead(204).end();
    if (method === "files" && request.method === "GET") return read(resolve(url.searchParams.get("path")), request, response);
    if (method === "files") return await write(url.searchParams.get("path"), request, response);
    if ((request.headers["content-type"] ?? "").startsWith("application/connect+json")) return await streaming(method, request, response);
    if (!unary[method]) throw new Refused("unimplemented", `${method} is not part of the stand-in`);
    json(response, 200, unary[method](JSON.parse(await bodyOf(request))));
  } catch (error) {
    const code = error.code in STATUS ? error.code : "internal";
    json(response, STATUS[code], { code, message: error.message });
  }
});
server.listen("/run/envd.sock");
