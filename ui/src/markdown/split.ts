/**
 * Splits Markdown into independent blocks, so that while an answer streams only its last block is parsed again.
 * Every block but the last is final: no text that follows can change it.
 */

import { cutLong, MAX_BLOCK } from "./cut-long";

export type Block =
  | { readonly type: "markdown"; readonly text: string }
  | { readonly type: "code"; readonly info: string; readonly text: string };

/** A block, and where the next one begins. `isOpen`: more text may change it. */
interface Found {
  readonly blocks: readonly Block[];
  readonly end: number;
  readonly isOpen: boolean;
  /** The header of a table that was cut: more of its rows follow. */
  readonly head?: string | null;
}

const FENCE = /^ {0,3}(`{3,}|~{3,})([^\n]*)$/;
const ITEM = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const HEADING = /^ {0,3}#{1,6}(?:\s|$)/;

export class BlockSplitter {
  #text = "";
  #final: Block[] = [];
  #from = 0;
  #head: string | null = null;

  /** The blocks of a text. Cheap if it starts with the text of the last call. */
  split(text: string): readonly Block[] {
    if (!text.startsWith(this.#text)) {
      this.#final = [];
      this.#from = 0;
      this.#head = null;
    }
    this.#text = text;
    for (;;) {
      const found = nextBlock(text, this.#from, this.#head);
      if (found === null) return [...this.#final];
      if (found.isOpen) return [...this.#final, ...found.blocks];
      this.#final.push(...found.blocks);
      this.#from = found.end;
      this.#head = found.head ?? null;
    }
  }
}

export function splitBlocks(text: string): readonly Block[] {
  return new BlockSplitter().split(text);
}

function nextBlock(text: string, from: number, head: string | null): Found | null {
  if (head !== null && lineAt(text, from).includes("|")) return markdownBlock(text, from, head);
  const start = skipBlankLines(text, from);
  if (start === null) return null;
  const fence = FENCE.exec(lineAt(text, start));
  return fence !== null && isFence(fence) ? codeBlock(text, start, fence) : markdownBlock(text, start, "");
}

/** Backticks with another backtick on the same line are a code span in a paragraph, not a fence. */
function isFence([, ticks, info]: RegExpExecArray): boolean {
  return ticks?.startsWith("~") === true || info?.includes("`") !== true;
}

function codeBlock(text: string, start: number, fence: RegExpExecArray): Found {
  const ticks = fence[1] ?? "```";
  const info = (fence[2] ?? "").trim();
  const first = afterLine(text, start);
  const close = new RegExp(`^ {0,3}${ticks[0]}{${ticks.length},}\\s*$`);
  for (let at = first; at < text.length;) {
    const next = afterLine(text, at);
    // The cheap test first: few lines of code pass it.
    if (isTickNear(text, at, ticks) && close.test(lineAt(text, at))) {
      const code = text.slice(first, Math.max(first, at - 1));
      return {
        blocks: [{ type: "code", info, text: code }],
        end: next,
        isOpen: !endsLine(text, next),
      };
    }
    at = next;
  }
  const block: Block = { type: "code", info, text: text.slice(first) };
  return { blocks: [block], end: text.length, isOpen: true };
}

function isTickNear(text: string, at: number, ticks: string): boolean {
  for (let place = at; place < at + 4; place += 1) {
    if (text[place] === ticks[0]) return true;
    if (text[place] !== " ") return false;
  }
  return false;
}

function markdownBlock(text: string, start: number, head: string): Found {
  let isList = false;
  let nested: string | null = null;
  let at = start;
  while (at < text.length) {
    const line = lineAt(text, at);
    const next = afterLine(text, at);
    if (at > start && nested === null) {
      const ends = line.trim() === "" ? endsAtBlank(text, at, isList) : interrupts(line, isList);
      if (ends === "unknown") break;
      if (ends) return finished(text, start, at, head);
    }
    nested = fenceAfter(line, nested);
    isList ||= ITEM.test(line);
    at = next;
    if (HEADING.test(line) && !isList && endsLine(text, at)) return finished(text, start, at, head);
    if (at - start > MAX_BLOCK) return long(text, start, at, head);
  }
  return { blocks: [{ type: "markdown", text: head + text.slice(start) }], end: text.length, isOpen: true };
}

/** A list continues after a blank line if an item or indented text follows, which may not be known yet. */
function endsAtBlank(text: string, at: number, isList: boolean): boolean | "unknown" {
  if (!isList) return endsLine(text, afterLine(text, at)) || "unknown";
  const next = skipBlankLines(text, at);
  if (next === null) return "unknown";
  const line = lineAt(text, next);
  if (!endsLine(text, afterLine(text, next)) && /^\s*(?:[-*+]|\d{1,9}[.)]?)?$/.test(line)) return "unknown";
  return !(ITEM.test(line) || /^(?: {2}|\t)/.test(line));
}

function interrupts(line: string, isList: boolean): boolean {
  const fence = FENCE.exec(line);
  if (fence !== null && isFence(fence)) return !isList || !/^ {2}/.test(line);
  return HEADING.test(line) && (!isList || line.startsWith("#"));
}

/** The fence that is open after a line of a list. Blank lines within it do not end the block. */
function fenceAfter(line: string, open: string | null): string | null {
  const ticks = /^\s*(?:(?:[-*+]|\d{1,9}[.)])\s+)?(`{3,}|~{3,})/.exec(line)?.[1];
  if (ticks === undefined) return open;
  if (open === null) return ticks;
  return ticks[0] === open[0] && ticks.length >= open.length ? null : open;
}

function finished(text: string, start: number, end: number, head: string): Found {
  const block = head + text.slice(start, end).trimEnd();
  return { blocks: [{ type: "markdown", text: block }], end, isOpen: false };
}

/** Cuts a block that is too long to be parsed again with every delta. */
function long(text: string, start: number, at: number, known: string): Found {
  const { pieces, length, head } = cutLong(text.slice(start, at), known);
  const blocks = pieces.map((piece): Block => ({ type: "markdown", text: piece }));
  return { blocks, end: start + length, isOpen: false, head };
}

/** The start of the first line that is not blank; null if there is none. */
function skipBlankLines(text: string, from: number): number | null {
  for (let at = from; at < text.length;) {
    const next = afterLine(text, at);
    if (lineAt(text, at).trim() !== "") return at;
    at = next;
  }
  return null;
}

function lineAt(text: string, at: number): string {
  const end = text.indexOf("\n", at);
  return text.slice(at, end < 0 ? text.length : end);
}

function afterLine(text: string, at: number): number {
  const end = text.indexOf("\n", at);
  return end < 0 ? text.length : end + 1;
}

/** Whether the line that ends here is complete, rather than still being written. */
function endsLine(text: string, end: number): boolean {
  return text[end - 1] === "\n";
}
