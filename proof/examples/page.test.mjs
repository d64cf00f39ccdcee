/** "Use it from your app" prints the example files exactly, and no code that is not tested. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { blocks, read, ROOT } from "./stage.mjs";

const PAGE = "docs/use-it-from-your-app.md";
/** Sections whose lines a test pastes from the page, and sections that set up what the tests already have. */
const PASTED = ["curl"];
const SET_UP = ["The package", "Behind a reverse proxy"];

const printed = blocks(PAGE).map((block) => {
  const [, file] = /^\[.*\]\(\.\.\/(examples\/\S+)\):$/.exec(block.before) ?? [];
  return { ...block, file };
});

test("every example is printed exactly like its file", () => {
  const files = printed.filter(({ file }) => file !== undefined);
  for (const { file, text } of files) assert.equal(text, read(file), file);
  const names = files.map(({ file }) => file.slice("examples/".length)).sort();
  const all = ["browser.html", "follow.py", "node.mjs", "react/answer.tsx", "react/chat.tsx", "react/vite.config.js"];
  assert.deepEqual(names, all);
});

test("no code is printed that is neither an example nor pasted", () => {
  const known = [...PASTED, ...SET_UP];
  for (const { file, heading, text } of printed)
    assert.ok(file !== undefined || known.includes(heading), `no test runs the code under ${heading}:\n${text}`);
});

test("the name of the package is right", () => {
  const { version } = JSON.parse(read("client/package.json"));
  const named = [...(read(PAGE) + read("client/README.md") + read("examples/react/package.json")).matchAll(/outlast-client-[\w.]*?\.tgz/g)];
  assert.ok(named.length > 0);
  for (const [name] of named) assert.equal(name, `outlast-client-${version}.tgz`);
});

test("every link and picture of the README and of this page exists", () => {
  for (const [path, folder] of [["README.md", "."], [PAGE, "docs"]])
    for (const [, link, picture] of read(path).matchAll(/\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)|src="([^"]+)"/g))
      assert.ok(existsSync(join(ROOT, folder, link ?? picture)), `${path} has ${link ?? picture}`);
});
