// An upstream that calls the tool it is told to, a server of Outlast that uses it, and MCP's test server.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const HERE = dirname(fileURLToPath(import.meta.url));
const OUTLAST = process.env.OUTLAST_BIN ?? join(HERE, "../../target/debug/outlast");
const PACKAGES = join(HERE, "node_modules/@modelcontextprotocol");
export const NODE = join(HERE, "node_modules/.bin/node");
export const EVERYTHING = join(PACKAGES, "server-everything/dist/index.js");
export const CONFORMANCE = join(PACKAGES, "conformance/dist/index.js");

/** Longer than anything here takes, even on a busy machine. */
const PATIENCE_MS = 60_000;

/** Waits until `look` returns something. */
export async function until(what, look) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited too long for ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** Starts a program and waits for a line that it prints. */
async function started(program, args, { env = {}, line, from = "stdout" }) {
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((done) => child.once("exit", done));
  const said = [];
  const found = new Promise((done, fail) => {
    for (const stream of ["stdout", "stderr"]) {
      createInterface({ input: child[stream] }).on("line", (text) => {
        said.push(text);
        const match = stream === from && text.match(line);
        if (match) done(match);
      });
    }
    ended.then((code) => fail(new Error(`${program} ended with ${code}:\n${said.join("\n")}`)));
  });
  found.catch(() => {}); // it may end later, when nobody waits
  const match = await found;
  const end = async (signal = "SIGKILL") => {
    child.kill(signal);
    await ended;
  };
  return { match, end, said, pid: child.pid };
}

/** A model that calls the tool in the user's message, which is JSON, and then repeats what the tool said. */
async function upstream() {
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const last = JSON.parse(body).messages.at(-1);
    response.writeHead(200, { "content-type": "text/event-stream" });
    const send = (delta, reason = null) =>
      response.write(`data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`);
    if (last.role === "tool") {
      send({ content: `It said: ${last.content}` });
      send({}, "stop");
    } else {
      const { tool, input } = JSON.parse(last.content);
      const call = { name: tool, arguments: JSON.stringify(input) };
      send({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: call }] });
      send({}, "tool_calls");
    }
    response.end("data: [DONE]\n\n");
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, end: () => server.close() };
}

/** A port that nobody uses now. */
export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** MCP's test server by HTTP. */
export async function everything(port) {
  return started(NODE, [EVERYTHING, "streamableHttp"], {
    env: { PORT: String(port) },
    line: /listening|port/i,
    from: "stderr",
  });
}

/** A server of Outlast with these settings about tools. */
export class Outlast {
  static async start(settings, env = {}) {
    const outlast = new Outlast();
    outlast.folder = mkdtempSync(join(tmpdir(), "outlast-mcp-"));
    outlast.upstream = await upstream();
    const model = `[models.default]\nkind = "openai"\nbase_url = "${outlast.upstream.url}"\nmodel = "scripted"\n`;
    outlast.config = join(outlast.folder, "outlast.toml");
    writeFileSync(outlast.config, `${model}[sandbox]\nkind = "none"\n${settings}`);
    outlast.env = env;
    await outlast.restart();
    return outlast;
  }

  async restart() {
    const args = ["serve", "--config", this.config, "--data", join(this.folder, "data"), "--listen", "127.0.0.1:0"];
    this.process = await started(OUTLAST, args, { env: this.env, line: /http:\/\/\S+/ });
    this.url = this.process.match[0];
  }

  async end() {
    await this.process.end();
    this.upstream.end();
    rmSync(this.folder, { recursive: true });
  }

  /** Runs a command of the same installation. */
  command(...args) {
    const where = ["--config", this.config, "--data", join(this.folder, "data")];
    const ran = spawnSync(OUTLAST, [...args, ...where], { encoding: "utf8" });
    if (ran.status !== 0) throw new Error(ran.stderr);
    return ran.stdout;
  }

  async get(path) {
    return (await fetch(this.url + path)).json();
  }

  async post(path, body) {
    const headers = { "content-type": "application/json" };
    return (await fetch(this.url + path, { method: "POST", headers, body: JSON.stringify(body) })).json();
  }

  async tools() {
    return (await this.get("/v1/tools")).data.map((tool) => tool.name);
  }

  async server(name) {
    return (await this.get("/v1/tools")).servers.find((server) => server.name === name);
  }

  async begin(tool, input = {}) {
    const started = await this.post("/v1/generations", { content: JSON.stringify({ tool, input }) });
    if (!started.generationId) throw new Error(JSON.stringify(started));
    return started.generationId;
  }

  /** The generation, once it has one of these statuses. */
  async reaches(id, ...statuses) {
    return until(statuses.join(" or "), async () => {
      const generation = await this.get(`/v1/generations/${id}`);
      return statuses.includes(generation.status) && generation;
    });
  }

  async events(id) {
    return (await this.get(`/v1/generations/${id}/events?format=json&limit=500`)).data;
  }

  /** Waits for an event of this type. */
  async recorded(id, type) {
    await until(type, async () => (await this.events(id)).some((event) => event.type === type));
  }

  /** What the tool answers, and how the generation ends. */
  async call(tool, input) {
    const id = await this.begin(tool, input);
    const { status, contentParts } = await this.reaches(id, "completed", "interrupted", "error");
    const result = contentParts.find((part) => part.type === "tool_result");
    return { id, status, text: String(result.content), isError: result.isError };
  }
}
