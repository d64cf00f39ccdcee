// Writes the client's types from the server's OpenAPI document. With `--check`, only fails if they are stale.
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString, COMMENT_HEADER } from "openapi-typescript";

const source = new URL("../../crates/outlast/openapi.json", import.meta.url);
const target = new URL("../src/generated/api.ts", import.meta.url);

const document = JSON.parse(readFileSync(source, "utf8"));
// The client has its own methods, so only the types of bodies are needed.
const types = await openapiTS(
  { ...document, paths: {} },
  { immutable: true, rootTypes: true, rootTypesNoSchemaPrefix: true, silent: true },
);
const text = COMMENT_HEADER + astToString(types);

if (!process.argv.includes("--check")) {
  writeFileSync(target, text);
} else if (readFileSync(target, "utf8") !== text) {
  console.error("src/generated/api.ts is stale: run `npm run generate`");
  process.exit(1);
}
