// Serves a folder and passes /v1 on to Outlast, so that a page and its server are one origin:
//   node examples/serve.mjs FOLDER [PORT]

import { createReadStream, statSync } from "node:fs";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { extname, join, normalize } from "node:path";

const [folder = ".", port = "8080"] = process.argv.slice(2);
const outlast = new URL(process.env.OUTLAST_URL ?? "http://127.0.0.1:8787");
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8" };

const server = createServer((asked, answer) => {
  if (!asked.url.startsWith("/v1/")) return file(asked.url, answer);
  // Host stays as it is: Outlast compares it with Origin.
  const { method, headers, url: path } = asked;
  const passed = request({ host: outlast.hostname, port: outlast.port, method, headers, path }, (theirs) => {
    answer.writeHead(theirs.statusCode, theirs.headers);
    theirs.pipe(answer);
    theirs.on("error", () => answer.destroy());
  });
  passed.on("error", () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()));
  answer.on("close", () => passed.destroy());
  asked.pipe(passed);
});

// A WebSocket begins as a request that is not answered but changed into a connection.
server.on("upgrade", (asked, socket, head) => {
  const theirs = connect(Number(outlast.port), outlast.hostname, () => {
    const pairs = asked.rawHeaders.map((text, place) => text + (place % 2 === 0 ? ": " : "\r\n"));
    theirs.write(`GET ${asked.url} HTTP/1.1\r\n${pairs.join("")}\r\n`);
    theirs.write(head);
    theirs.pipe(socket).pipe(theirs);
  });
  for (const [one, other] of [[socket, theirs], [theirs, socket]]) {
    one.on("error", () => {});
    one.on("close", () => other.destroy());
  }
});

function file(url, answer) {
  const path = join(folder, normalize(decodeURIComponent(new URL(url, "http://page").pathname)));
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) return answer.writeHead(404).end();
  answer.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" });
  createReadStream(path).pipe(answer);
}

server.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
