/** Cuts very long blocks: a paragraph of a megabyte, a table of a thousand rows. */

/** The longest block that is parsed in one go. Parsing Markdown can take quadratic time. */
export const MAX_BLOCK = 4_000;

const DELIMITER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

export interface Cut {
  readonly pieces: readonly string[];
  /** How much of the text the pieces hold. */
  readonly length: number;
  /** The header of the table that continues after the cut; null if it is no table. */
  readonly head: string | null;
}

/**
 * Cuts pieces of at most `MAX_BLOCK` characters off a text. A table is cut between rows, and its header is repeated
 * in each piece: `known` if the text starts in the middle of a table.
 */
export function cutLong(text: string, known: string): Cut {
  const own = known === "" ? tableHead(text) : null;
  const head = own ?? (known === "" ? null : known);
  const pieces: string[] = [];
  let from = 0;
  while (text.length - from > MAX_BLOCK) {
    const end = from + placeToCut(text.slice(from, from + MAX_BLOCK), head !== null);
    const piece = text.slice(from, end);
    const hasHead = from === 0 && own !== null;
    pieces.push(head === null || hasHead ? piece : head + piece);
    from = end;
  }
  return { pieces, length: from, head };
}

/** After the last line, else after the last word, else anywhere but within a surrogate pair. */
function placeToCut(text: string, isTable: boolean): number {
  const line = text.lastIndexOf("\n");
  if (line > 0 && (isTable || line > MAX_BLOCK / 2)) return line + 1;
  const word = text.lastIndexOf(" ");
  if (word > MAX_BLOCK / 2) return word + 1;
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff ? text.length - 1 : text.length;
}

/** The first two lines of a table, with their line breaks; null if it is no table. */
function tableHead(text: string): string | null {
  const first = text.indexOf("\n");
  const second = text.indexOf("\n", first + 1);
  if (first < 0 || second < 0 || second > MAX_BLOCK / 2) return null;
  const isTable = text.slice(0, first).includes("|") && DELIMITER.test(text.slice(first + 1, second));
  return isTable ? text.slice(0, second + 1) : null;
}
