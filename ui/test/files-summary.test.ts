import { expect, it } from "vitest";
import { takeSummary } from "../src/files/files-summary";

const block = (...lines: readonly string[]): string =>
  ["<files_summary>", ...lines, "</files_summary>"].join("\n");

it("s4_the_block_becomes_a_list_and_leaves_the_text", () => {
  const said = `All tests pass.\n\n${block("- sum.sh: adds numbers: all of them", "- a&#58;b.txt", "- old.css: deleted")}`;
  expect(takeSummary(said, false)).toEqual({
    text: "All tests pass.",
    files: [
      { path: "sum.sh", description: "adds numbers: all of them" },
      { path: "a:b.txt", description: "" },
      { path: "old.css", description: "deleted" },
    ],
  });
});

it("of several blocks at the end the last one counts, and none is shown as text", () => {
  const said = `Done.\n\n${block("- `wrong.ts`: mine")}\n\n${block("- right.ts: modified")}`;
  expect(takeSummary(said, false)).toEqual({
    text: "Done.",
    files: [{ path: "right.ts", description: "modified" }],
  });
});

it("text that only speaks of a block stays as it is", () => {
  for (const said of [
    `Here is how:\n\n${block("- a: b")}\n\nThat was it.`,
    "I write a `<files_summary>` at the end.",
    "<files_summary>\n- never closed",
    "1 < 2",
  ])
    expect(takeSummary(said, false)).toEqual({ text: said, files: [] });
});

it("a block that is still arriving is never shown as text", () => {
  const whole = `Done.\n\n${block("- a.ts: new")}`;
  for (let length = 8; length <= whole.length; length += 1)
    expect(takeSummary(whole.slice(0, length), true).text.trimEnd()).toBe("Done.");
});
