/** Parses one block of Markdown into tokens. Nothing here produces HTML. */

import { Marked } from "marked";
import type { Token } from "marked";

const reader = new Marked({
  gfm: true,
  tokenizer: {
    // HTML from a model is plain text.
    html: () => undefined,
    tag: () => undefined,
    // Blocks are parsed one by one, so reference definitions cannot be resolved.
    def: () => undefined,
  },
});

/** More levels of quotes and lists than people write, and slow to parse. */
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])){24,}/m;
/** A block with more of these than `MAX_SIGNS` is not prose, and slow to parse. */
const SIGNS = /[*_~[\]<`!@\\]/g;
const MAX_SIGNS = 800;

/** The tokens of a block, or null if it should be shown as plain text. */
export function lexBlock(text: string): readonly Token[] | null {
  if (TOO_DEEP.test(text) || (text.match(SIGNS)?.length ?? 0) > MAX_SIGNS) return null;
  try {
    return reader.lexer(text);
  } catch {
    return null;
  }
}
