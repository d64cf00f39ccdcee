// Serves a folder and forwards /v1 to Outlast, so that the page and the API have the same origin:
//   node examples/serve.mjs FOLDER [PORT]

import { createReadStream, statSync } from "node:fs";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { extname, join, normalize } from "node:path";

const [folder = ".", port = "8080"] = process.argv.slice(2);
const outlast = new URL(process.env.OUTLAST_URL ?? "http://127.0.0.1:8787");
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8" };

const server = createServer((incoming, response) => {
  if (!incoming.url.startsWith("/v1/")) return file(incoming.url, response);
  // Host is left unchanged: Outlast compares it with Origin.
  const { method, headers, url: path } = incoming;
  const options = { host: outlast.hostname, port: outlast.port, method, headers, path };
  const forwarded = request(options, (upstream) => {
    response.writeHead(upstream.statusCode, upstream.headers);
    upstream.pipe(response);
    upstream.on("error", () => response.destroy());
  });
  forwarded.on("error", () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
  response.on("close", () => forwarded.destroy());
  incoming.pipe(forwarded);
});

// A WebSocket starts as an HTTP request that is upgraded to a plain connection.
server.on("upgrade", (incoming, socket, head) => {
  const upstream = connect(Number(outlast.port), outlast.hostname, () => {
    const pairs = incoming.rawHeaders.map((text, index) => text + (index % 2 === 0 ? ": " : "\r\n"));
    upstream.write(`GET ${incoming.url} HTTP/1.1\r\n${pairs.join("")}\r\n`);
    upstream.write(head);
    upstream.pipe(socket).pipe(upstream);
  });
  for (const [one, other] of [[socket, upstream], [upstream, socket]]) {
    one.on("error", () => {});
    one.on("close", () => other.destroy());
  }
});

function file(url, response) {
  const path = join(folder, normalize(decodeURIComponent(new URL(url, "http://page").pathname)));
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" });
  createReadStream(path).pipe(response);
}

server.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
