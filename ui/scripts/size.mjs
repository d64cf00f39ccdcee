// Says how large the app is, and fails if what a browser loads first has grown too large.

import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

/** What a phone on a slow network takes about a second for. */
const LIMIT = 130_000;

const assets = new URL("../dist/assets/", import.meta.url);
let total = 0;
for (const name of readdirSync(assets)) {
  const bytes = readFileSync(new URL(name, assets));
  const zipped = gzipSync(bytes, { level: 9 }).length;
  total += zipped;
  console.log(`${name}: ${bytes.length} bytes, ${zipped} with gzip`);
}
console.log(`together ${total} bytes with gzip, of at most ${LIMIT}`);
if (total > LIMIT) process.exit(1);
