/**
 * Characters that cannot be seen but change what a line says. Bidirectional embeddings, overrides and isolates
 * reorder the text that follows them; zero-width characters and unusual spaces make two different commands look
 * the same. They are shown by code point instead.
 */

/** LRM, RLM and ALM are left out: Arabic and Hebrew need them, and they affect no other text. */
const BIDI = /[\u202a-\u202e\u2066-\u2069]/g;

/**
 * Everything that leaves no mark on the screen, except space, tab and line feed. U+2800 is the empty Braille
 * pattern.
 */
const INVISIBLE = /((?![ \t\n])[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}\p{Cs}\p{Z}\u2800])/u;

/** For text that is only read: shows what could reorder it. */
export function revealBidi(text: string): string {
  return text.replace(BIDI, codePoint);
}

export interface Piece {
  readonly text: string;
  /** Whether this represents a character that cannot be seen. */
  readonly isMark: boolean;
}

/** For text that a person is asked to approve: shows every character that cannot be seen. */
export function revealAll(text: string): readonly Piece[] {
  // The group in the pattern keeps the separators, so that every second piece is one of them.
  return text.split(INVISIBLE).map((piece, place) => {
    const isMark = place % 2 === 1;
    return { text: isMark ? codePoint(piece) : piece, isMark };
  });
}

function codePoint(character: string): string {
  return `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
