/**
 * A proxy between browser and server. It serves the built app and forwards `/v1`; with OUTLAST_UI_EMBEDDED set it
 * forwards everything, because the binary serves the app. The Host header stays as the browser sent it: the server
 * accepts only requests of its own origin.
 */

import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer, request } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import { connect } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const isEmbedded = process.env["OUTLAST_UI_EMBEDDED"] !== undefined;
const dist = fileURLToPath(new URL("../dist/", import.meta.url));

/** The policy that the binary sends, so that the app is tested with it. */
const POLICY =
  "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; " +
  "frame-ancestors 'none'";

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".png": "image/png",
  ".webmanifest": "application/manifest+json",
};

export interface Site {
  readonly url: string;
  /** True closes all connections and forwards nothing until it is called with false. */
  cut(isCut: boolean): void;
  close(): Promise<void>;
}

export async function startSite(port: number): Promise<Site> {
  if (!isEmbedded && !existsSync(join(dist, "index.html")))
    throw new Error('no app in dist: run "npm run build" first');
  const sockets = new Set<Socket>();
  let isCut = false;
  const server = createServer((asked, answer) => {
    if (!isEmbedded && asked.url?.startsWith("/v1/") !== true) return file(asked, answer);
    if (isCut) return void asked.socket.destroy();
    pass(port, asked, answer);
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  server.on("upgrade", (asked: IncomingMessage, socket: Socket, head: Buffer) => {
    if (isCut) return void socket.destroy();
    tunnel(port, asked, socket, head);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const end = (): void => sockets.forEach((socket) => socket.destroy());
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut(value) {
      isCut = value;
      if (value) end();
    },
    async close() {
      end();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function pass(port: number, asked: IncomingMessage, answer: ServerResponse): void {
  const options = { host: "127.0.0.1", port, path: asked.url, method: asked.method, headers: asked.headers };
  const upstream = request(options, (response) => {
    answer.writeHead(response.statusCode ?? 502, response.headers);
    response.pipe(answer);
    // An incomplete body must be incomplete here too, not look complete.
    response.on("aborted", () => answer.destroy());
  });
  // If the server cannot be reached, the browser must not reach it either.
  upstream.on("error", () => asked.socket.destroy());
  answer.on("close", () => upstream.destroy());
  asked.pipe(upstream);
}

function tunnel(port: number, asked: IncomingMessage, socket: Socket, head: Buffer): void {
  const upstream = connect(port, "127.0.0.1", () => {
    const lines = [`${asked.method} ${asked.url} HTTP/1.1`];
    for (let place = 0; place < asked.rawHeaders.length; place += 2)
      lines.push(`${asked.rawHeaders[place]}: ${asked.rawHeaders[place + 1]}`);
    upstream.write(`${lines.join("\r\n")}\r\n\r\n`);
    upstream.write(head);
    upstream.pipe(socket);
    socket.pipe(upstream);
  });
  for (const [one, other] of [
    [upstream, socket],
    [socket, upstream],
  ] as const) {
    one.on("error", () => {});
    one.on("close", () => other.destroy());
  }
}

/** A file of the app, or the app itself for a path without a file. */
function file(asked: IncomingMessage, answer: ServerResponse): void {
  const path = normalize(decodeURIComponent(new URL(asked.url ?? "/", "http://site").pathname));
  const wanted = join(dist, path);
  const isFile = wanted.startsWith(dist) && existsSync(wanted) && statSync(wanted).isFile();
  if (!isFile && extname(path) !== "") return void answer.writeHead(404).end();
  const found = isFile ? wanted : join(dist, "index.html");
  answer.writeHead(200, {
    "content-type": TYPES[extname(found)] ?? "application/octet-stream",
    "content-security-policy": POLICY,
    "cache-control": path.startsWith("/assets/") ? "public, max-age=31536000, immutable" : "no-cache",
  });
  createReadStream(found).pipe(answer);
}
