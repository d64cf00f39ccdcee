// Prints the size of the app, and fails if a browser would have to load too much.

import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** About a second on a phone with a slow network. */
const LIMIT = 130_000;

const assets = new URL("../dist/assets/", import.meta.url);
let total = 0;
for (const name of readdirSync(assets)) {
  const bytes = readFileSync(new URL(name, assets));
  const zipped = gzipSync(bytes, { level: 9 }).length;
  total += zipped;
  console.log(`${name}: ${bytes.length} bytes, ${zipped} gzipped`);
}
console.log(`total: ${total} bytes gzipped, limit ${LIMIT}`);
if (total > LIMIT) process.exit(1);
