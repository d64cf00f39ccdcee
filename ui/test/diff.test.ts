import { expect, it } from "vitest";
import { parseDiff } from "../src/files/diff";

it("x9_a_diff_is_read_file_by_file", () => {
  const text = [
    "diff --git a/new.sh b/new.sh",
    "new file mode 100644",
    "--- /dev/null",
    "+++ b/new.sh",
    "@@ -0,0 +1,2 @@",
    "+diff --git a/x b/x",
    "+++ two",
    "diff --git a/old name b/old name",
    "deleted file mode 100644",
    "--- a/old name",
    "+++ /dev/null",
    "@@ -1 +0,0 @@",
    "--- gone",
    "\\ No newline at end of file",
    'diff --git "a/gr\\303\\274n \\"x\\".txt" "b/gr\\303\\274n \\"x\\".txt"',
    "old mode 100644",
    "new mode 100755",
    "diff --git a/pic.png b/pic.png",
    "Binary or large files differ: 1 bytes before, 2 bytes after",
    "",
  ].join("\n");
  expect(parseDiff(text)).toEqual([
    {
      path: "new.sh",
      change: "added",
      lines: [
        { kind: "place", text: "@@ -0,0 +1,2 @@" },
        { kind: "added", text: "diff --git a/x b/x" },
        { kind: "added", text: "++ two" },
      ],
    },
    {
      path: "old name",
      change: "deleted",
      lines: [
        { kind: "place", text: "@@ -1 +0,0 @@" },
        { kind: "removed", text: "-- gone" },
        { kind: "note", text: "\\ No newline at end of file" },
      ],
    },
    { path: 'grün "x".txt', change: "modified", lines: [] },
    {
      path: "pic.png",
      change: "modified",
      lines: [{ kind: "note", text: "Binary or large files differ: 1 bytes before, 2 bytes after" }],
    },
  ]);
  expect(parseDiff("")).toEqual([]);
});
