// The client that the conformance suite starts: `client.mjs URL`. Outlast connects to the URL, and its model calls every
// tool there is.

import { Outlast, until } from "./stage.mjs";

const INPUTS = { suite__add_numbers: { a: 5, b: 3 } };

const outlast = await Outlast.start(
  `[mcp.suite]\nurl = "${process.argv.at(-1)}"\nallow_private = true\n[tools.suite]\npolicy = "allow"\n`,
);
try {
  await until("the connection", async () => !(await outlast.server("suite")).problem);
  for (const tool of await outlast.tools()) {
    const { status, text } = await outlast.call(tool, INPUTS[tool] ?? {});
    console.log(tool, status, text);
  }
} finally {
  await outlast.end();
}
