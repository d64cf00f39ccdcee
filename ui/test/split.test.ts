import { describe, expect, it } from "vitest";
import { MAX_BLOCK } from "../src/markdown/cut-long";
import { BlockSplitter, splitBlocks } from "../src/markdown/split";
import type { Block } from "../src/markdown/split";

const texts = (text: string): readonly string[] =>
  splitBlocks(text).map((block) => (block.type === "code" ? `${block.info}:${block.text}` : block.text));

const SAMPLE = `# Title
A paragraph
of two lines.

- one
- two

  more of two

- three
\`\`\`ts
const a = 1;

const b = 2;
\`\`\`
Text right after.
> a quote
> goes on

| a | b |
|---|---|
| 1 | 2 |

1. first

   \`\`\`sh
   ls

   pwd
   \`\`\`

2. second

Done.
`;

describe("a text is split into blocks", () => {
  it("at blank lines, headings and fences", () => {
    expect(texts(SAMPLE)).toEqual([
      "# Title",
      "A paragraph\nof two lines.",
      "- one\n- two\n\n  more of two\n\n- three",
      "ts:const a = 1;\n\nconst b = 2;",
      "Text right after.\n> a quote\n> goes on",
      "| a | b |\n|---|---|\n| 1 | 2 |",
      "1. first\n\n   ```sh\n   ls\n\n   pwd\n   ```\n\n2. second",
      "Done.\n",
    ]);
  });

  it("the same way, however it arrives", () => {
    const whole = splitBlocks(SAMPLE);
    for (const step of [1, 2, 3, 7, 50]) {
      const splitter = new BlockSplitter();
      for (let end = 0; end < SAMPLE.length; end += step) splitter.split(SAMPLE.slice(0, end));
      expect(splitter.split(SAMPLE)).toEqual(whole);
    }
  });

  it("so that all but the last never change", () => {
    const splitter = new BlockSplitter();
    let before: readonly Block[] = [];
    for (let end = 0; end <= SAMPLE.length; end += 1) {
      const now = splitter.split(SAMPLE.slice(0, end));
      const final = before.slice(0, -1);
      expect(now.slice(0, final.length)).toEqual(final);
      // The same objects, so that nothing renders again.
      final.forEach((block, place) => expect(now[place]).toBe(block));
      before = now;
    }
  });

  it("from the start when it is another text", () => {
    const splitter = new BlockSplitter();
    splitter.split("one\n\ntwo\n\n");
    expect(splitter.split("three")).toEqual([{ type: "markdown", text: "three" }]);
  });

  it("with an open fence as code from its first line", () => {
    expect(splitBlocks("```js\nlet x")).toEqual([{ type: "code", info: "js", text: "let x" }]);
    expect(splitBlocks("~~~\n```\n~~~\n")).toEqual([{ type: "code", info: "", text: "```" }]);
    expect(splitBlocks("```not a `fence`\n")).toMatchObject([{ type: "markdown" }]);
  });
});

describe("a very long block", () => {
  it("is cut into pieces without losing any of it", () => {
    for (const word of ["x", "some words ", "a line\n", "😀"]) {
      const text = word.repeat(Math.ceil((MAX_BLOCK * 5) / word.length));
      const blocks = texts(text);
      expect(blocks.join("").replaceAll("\n", "")).toBe(text.replaceAll("\n", ""));
      expect(Math.max(...blocks.map(({ length }) => length))).toBeLessThanOrEqual(MAX_BLOCK + 10);
      for (const block of blocks) expect(block).not.toMatch(/^[\udc00-\udfff]|[\ud800-\udbff]$/);
    }
  });

  it("repeats the header of a table in each piece", () => {
    const rows = Array.from({ length: 600 }, (_, row) => `| ${row} | value ${row} |`);
    const blocks = texts(["| a | b |", "|---|---|", ...rows, "", "After."].join("\n"));
    expect(blocks.length).toBeGreaterThan(3);
    for (const block of blocks.slice(0, -1)) expect(block.startsWith("| a | b |\n|---|---|\n|")).toBe(true);
    const all = blocks.slice(0, -1).flatMap((block) => block.split("\n").slice(2));
    expect(all.filter((line) => line !== "")).toEqual(rows);
    expect(blocks.at(-1)).toBe("After.");
  });

  it("takes time proportional to its length", () => {
    const splitter = new BlockSplitter();
    const line = "y".repeat(1_000_000);
    const begin = performance.now();
    for (let end = 0; end <= line.length; end += 10_000) splitter.split(line.slice(0, end));
    expect(performance.now() - begin).toBeLessThan(1_000);
  });
});
