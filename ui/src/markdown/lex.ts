/** Reads one block of Markdown into tokens. Nothing here makes HTML. */

import { Marked } from "marked";
import type { Token } from "marked";

const reader = new Marked({
  gfm: true,
  tokenizer: {
    // A model's HTML is text like any other.
    html: () => undefined,
    tag: () => undefined,
    // Blocks are read one by one, so that an address cannot be given somewhere else.
    def: () => undefined,
  },
});

/** More levels of quotes and lists than a person would write. Reading them takes too long. */
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])){24,}/m;
/** So many signs of emphasis, links and code in one block are no prose. */
const SIGNS = /[*_~[\]<`!@\\]/g;
const MAX_SIGNS = 800;

/** The tokens of a block, or null if it is better shown as it is written. */
export function lexBlock(text: string): readonly Token[] | null {
  if (TOO_DEEP.test(text) || (text.match(SIGNS)?.length ?? 0) > MAX_SIGNS) return null;
  try {
    return reader.lexer(text);
  } catch {
    return null;
  }
}
