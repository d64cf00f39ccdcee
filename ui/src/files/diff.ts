/** Reads a unified diff in git's format, file by file. */

export interface DiffLine {
  readonly kind: "same" | "added" | "removed" | "place" | "note";
  readonly text: string;
}

export interface FileDiff {
  readonly path: string;
  readonly change: "added" | "modified" | "deleted";
  readonly lines: readonly DiffLine[];
}

const FILE = "diff --git ";

export function parseDiff(text: string): readonly FileDiff[] {
  // Content lines start with a space, + or -, so a line that starts like this always begins a new file.
  const files = `\n${text}`.split(`\n${FILE}`).slice(1);
  return files.map((file) => {
    const [head = "", ...rest] = file.replace(/\n$/, "").split("\n");
    const start = rest.findIndex((line) => /^(@@|Binary|\[)/.test(line));
    const before = start < 0 ? rest : rest.slice(0, start);
    return {
      path: pathIn(head),
      change: changeIn(before),
      lines: (start < 0 ? [] : rest.slice(start)).map(lineOf),
    };
  });
}

function changeIn(head: readonly string[]): FileDiff["change"] {
  if (head.some((line) => line.startsWith("new file"))) return "added";
  return head.some((line) => line.startsWith("deleted file")) ? "deleted" : "modified";
}

function lineOf(line: string): DiffLine {
  switch (line[0]) {
    case "+":
      return { kind: "added", text: line.slice(1) };
    case "-":
      return { kind: "removed", text: line.slice(1) };
    case " ":
      return { kind: "same", text: line.slice(1) };
    case "@":
      return { kind: "place", text: line };
    default:
      return { kind: "note", text: line };
  }
}

/** Both sides have the same path, so each is half of the line: `a/x b/x`, or `"a/x" "b/x"`. */
function pathIn(head: string): string {
  const half = head.slice(0, (head.length - 1) / 2);
  return half.startsWith('"') ? unquoted(half.slice(3, -1)) : half.slice(2);
}

/** The server quotes paths like git, with special bytes in octal. */
function unquoted(text: string): string {
  const bytes: number[] = [];
  for (let place = 0; place < text.length; place += 1) {
    const [, octal] = /^\\([0-7]{3})/.exec(text.slice(place, place + 4)) ?? [];
    if (octal !== undefined) {
      bytes.push(Number.parseInt(octal, 8));
      place += 3;
    } else {
      if (text[place] === "\\") place += 1;
      bytes.push(text.charCodeAt(place));
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}
