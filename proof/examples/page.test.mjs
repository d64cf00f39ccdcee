/** "Use it from your app" prints the examples as they are, and no code that nobody runs. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { blocks, read, ROOT } from "./stage.mjs";

const PAGE = "docs/use-it-from-your-app.md";
/** Sections whose lines are pasted from the page by a test, and those that set up what a test has set up already. */
const PASTED = ["curl"];
const SET_UP = ["The package", "Behind a reverse proxy"];

const printed = blocks(PAGE).map((block) => {
  const [, file] = /^\[.*\]\(\.\.\/(examples\/\S+)\):$/.exec(block.before) ?? [];
  return { ...block, file };
});

test("every example is printed as its file is", () => {
  const files = printed.filter(({ file }) => file !== undefined);
  for (const { file, text } of files) assert.equal(text, read(file), file);
  const names = files.map(({ file }) => file.slice("examples/".length)).sort();
  const all = ["browser.html", "follow.py", "node.mjs", "react/answer.tsx", "react/chat.tsx", "react/vite.config.js"];
  assert.deepEqual(names, all);
});

test("no code is printed that is neither an example nor pasted", () => {
  const known = [...PASTED, ...SET_UP];
  for (const { file, heading, text } of printed)
    assert.ok(file !== undefined || known.includes(heading), `nobody runs what stands under ${heading}:\n${text}`);
});

test("the package is called what it is called", () => {
  const { version } = JSON.parse(read("client/package.json"));
  const named = [...(read(PAGE) + read("client/README.md") + read("examples/react/package.json")).matchAll(/outlast-client-[\w.]*?\.tgz/g)];
  assert.ok(named.length > 0);
  for (const [name] of named) assert.equal(name, `outlast-client-${version}.tgz`);
});

test("every link and picture of the README and of this page leads somewhere", () => {
  for (const [path, folder] of [["README.md", "."], [PAGE, "docs"]])
    for (const [, link, picture] of read(path).matchAll(/\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)|src="([^"]+)"/g))
      assert.ok(existsSync(join(ROOT, folder, link ?? picture)), `${path} has ${link ?? picture}`);
});
