/** Cuts code into pieces of whole lines. A line longer than a piece is cut too. */

const PIECE = 6_000;

export function codePieces(code: string): readonly string[] {
  const pieces: string[] = [];
  let from = 0;
  while (code.length - from > PIECE) {
    const line = code.lastIndexOf("\n", from + PIECE);
    const end = line > from ? line : from + PIECE;
    pieces.push(code.slice(from, end));
    // Each piece is a separate element, which replaces the line break.
    from = line > from ? end + 1 : end;
  }
  return [...pieces, code.slice(from)];
}
