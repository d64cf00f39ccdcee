/** The list of changed files at the end of an answer, which the server writes as a `<files_summary>` block. */

import { decodeEntities } from "../markdown/entities";

const OPEN = "<files_summary>";
const CLOSE = "</files_summary>";

export interface DescribedFile {
  readonly path: string;
  /** Empty if nobody described it. */
  readonly description: string;
}

export interface Summarised {
  /** The answer without the block. */
  readonly text: string;
  readonly files: readonly DescribedFile[];
}

/** Takes the blocks off the end of an answer. The last one counts: the server corrects what a model wrote. */
export function takeSummary(said: string, isStreaming: boolean): Summarised {
  let text = isStreaming ? withoutBegun(said) : said;
  let files: readonly DescribedFile[] | null = null;
  for (;;) {
    const start = text.lastIndexOf(OPEN);
    if (start < 0 || !(start === 0 || text[start - 1] === "\n")) break;
    const end = text.indexOf(CLOSE, start);
    // A block that was not closed goes to the end; one in the middle of an answer is part of what was said.
    if (end < 0 ? !isStreaming : text.slice(end + CLOSE.length).trim() !== "") break;
    files ??= filesIn(text.slice(start + OPEN.length, end < 0 ? undefined : end));
    text = text.slice(0, start).trimEnd();
  }
  return { text, files: files ?? [] };
}

/** While the first letters of a block arrive, they are not shown. */
function withoutBegun(text: string): string {
  const start = text.lastIndexOf("<");
  const isBegun = start >= 0 && text.length - start < OPEN.length && OPEN.startsWith(text.slice(start));
  return isBegun ? text.slice(0, start) : text;
}

function filesIn(block: string): readonly DescribedFile[] {
  const files = new Map<string, DescribedFile>();
  for (const line of block.split("\n")) {
    const [, item] = /^\s*[-*•+]\s+(.+?)\s*$/.exec(line) ?? [];
    if (item === undefined) continue;
    const [path = "", ...rest] = item.split(/:\s(.*)/s);
    const file = { path: plain(path), description: decodeEntities(rest.join("").trim()) };
    if (file.path !== "" && !files.has(file.path)) files.set(file.path, file);
  }
  return [...files.values()];
}

/** A path without the marks that models put around it. */
function plain(path: string): string {
  const bare = path
    .trim()
    .replace(/^(\*\*|`|")(.*)\1$/s, "$2")
    .replace(/:$/, "");
  return decodeEntities(bare).replace(/^\.\//, "");
}
