/**
 * The last block of a streaming answer often ends in the middle of a Markdown construct. This completes it for
 * display, so that nothing flickers: an open `**` is bold before it is closed, an incomplete link is its text, an
 * incomplete table is a table.
 */

export function mend(text: string): string {
  return closeSpans(holdLink(completeTable(holdLastLine(text))));
}

/**
 * A last line of only dashes may become a rule, a list or a heading, and one of backticks a fence. It is left out
 * until that is known.
 */
function holdLastLine(text: string): string {
  const start = text.lastIndexOf("\n") + 1;
  const line = text.slice(start);
  const isUndecided = UNDECIDED.test(line) || (start > 0 && /^\s*\d{1,9}$/.test(line));
  return isUndecided ? text.slice(0, start) : text;
}

const UNDECIDED = /^\s*(?:[-=*+_]+|`{1,2}|~{1,2}|(?:`{3}|~{3})[^`\s]*|#{1,6}|\d{1,9}[.)]|[-*+] \[[ xX]?)\s*$/;
const HEAD = /^\s*\|.*\|\s*$/;

/** A table header without its delimiter row would be shown as text with bars. */
function completeTable(text: string): string {
  const [head = "", below] = text.split("\n", 2);
  if (!head.trimStart().startsWith("|") || text.split("\n", 3).length > 2) return text;
  if (below === undefined) return "";
  if (!HEAD.test(head) || !/^[\s|:-]*$/.test(below)) return text;
  const columns = Math.max(1, head.replaceAll("\\|", "").split("|").length - 2);
  return `${head}\n|${"---|".repeat(columns)}`;
}

/** `[text](addr` becomes the text; an incomplete picture is left out. */
function holdLink(text: string): string {
  const open = /(!?)\[([^\]\n]*)(?:\]\([^)\s]*|\]?)$/.exec(text);
  if (open === null || isInCode(text.slice(0, open.index))) return text;
  const [whole, isPicture, label] = open;
  // A task list box, or a bracket at the end of a sentence, is not a link.
  if (whole.endsWith("]") && !whole.includes("](")) return text;
  return text.slice(0, open.index) + (isPicture ? "" : label);
}

function isInCode(text: string): boolean {
  return (text.match(/`/g)?.length ?? 0) % 2 === 1;
}

/** Closes the open spans of the last paragraph, innermost first. */
function closeSpans(text: string): string {
  // Markers at the very end, after a space, have no text to mark yet.
  const hanging = /(^|\s)[*_~`]+$/.exec(text);
  if (hanging !== null) return closeSpans(text.slice(0, hanging.index) + (hanging[1] ?? ""));
  const start = text.lastIndexOf("\n\n") + 1;
  const open: string[] = [];
  const signs = /\\.|(`+)|(\*{1,3}|~~|__)/g;
  const line = text.slice(start);
  for (let found = signs.exec(line); found !== null; found = signs.exec(line)) {
    const [, ticks, sign] = found;
    if (open.at(-1)?.startsWith("`")) {
      if (ticks === open.at(-1)) open.pop();
    } else if (ticks !== undefined) open.push(ticks);
    else if (sign !== undefined) toggle(open, sign, line, found.index);
  }
  if (open.length === 0) return text;
  const bare = text.replace(/[*_~`]+$/, "");
  // Markers at the end may also be the first half of a closing one.
  if (bare !== text) return bare === "" ? "" : closeSpans(bare);
  // A closing marker after a space would not close anything.
  const words = text.trimEnd();
  return words + open.reverse().join("");
}

function toggle(open: string[], sign: string, line: string, at: number): void {
  const before = line[at - 1] ?? " ";
  const after = line[at + sign.length] ?? " ";
  if (open.at(-1) === sign && /\S/.test(before)) open.pop();
  else if (/\S/.test(after) && !isItem(sign, line, at)) open.push(sign);
}

/** An asterisk at the start of a line, followed by a space, is a list item. */
function isItem(sign: string, line: string, at: number): boolean {
  return sign === "*" && line[at + 1] === " " && /(?:^|\n)\s*$/.test(line.slice(0, at));
}
