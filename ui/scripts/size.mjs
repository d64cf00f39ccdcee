// Prints the size of the app, and fails if a browser would have to load too much before it shows a conversation.

import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** About a second on a phone with a slow network. */
const LIMIT = 130_000;

const dist = new URL("../dist/", import.meta.url);
const page = readFileSync(new URL("index.html", dist), "utf8");
let first = 0;
for (const name of readdirSync(new URL("assets/", dist))) {
  const bytes = readFileSync(new URL(`assets/${name}`, dist));
  const zipped = gzipSync(bytes, { level: 9 }).length;
  const isFirst = page.includes(name);
  if (isFirst) first += zipped;
  console.log(`${name}: ${bytes.length} bytes, ${zipped} gzipped${isFirst ? "" : ", loaded later"}`);
}
console.log(`loaded first: ${first} bytes gzipped, limit ${LIMIT}`);
if (first > LIMIT) process.exit(1);
