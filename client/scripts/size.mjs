// Prints the size of each entry point, and fails if the core exceeds its budget.
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const LIMIT_BYTES = 12_000;

async function size(entry) {
  const options = { bundle: true, minify: true, format: "esm", target: "es2022", write: false };
  const { outputFiles } = await build({ ...options, entryPoints: [`src/${entry}`], external: ["react"] });
  return gzipSync(outputFiles[0].contents, { level: 9 }).length;
}

const core = await size("index.ts");
console.log(`@outlast/client        ${core} bytes (limit ${LIMIT_BYTES}), minified and gzipped`);
console.log(`@outlast/client/list   ${await size("conversation-list.ts")} bytes, including the core`);
console.log(`@outlast/client/notifications  ${await size("notifications.ts")} bytes, including the core`);
console.log(`@outlast/client/react  ${await size("react/index.ts")} bytes, including everything but React`);
if (core >= LIMIT_BYTES) {
  console.error("the core exceeds its budget");
  process.exit(1);
}
