/** What a tool has written, cut to what a page can show. */

import type { OutputPiece } from "@outlast/client";

/** More than anyone reads at once, and little enough to lay out in a frame. */
export const SHOWN_LENGTH = 20_000;

export interface Written {
  readonly pieces: readonly OutputPiece[];
  /** How many characters at the start are left out. */
  readonly hidden: number;
}

/** The end of the output: the last whole lines that fit. */
export function endOf(pieces: readonly OutputPiece[], length = SHOWN_LENGTH): Written {
  const total = pieces.reduce((sum, { text }) => sum + text.length, 0);
  if (total <= length) return { pieces, hidden: 0 };
  const kept: OutputPiece[] = [];
  let rest = length;
  for (const piece of [...pieces].reverse()) {
    if (rest === 0) break;
    const text = piece.text.length <= rest ? piece.text : fromLine(piece.text, piece.text.length - rest);
    rest = piece.text.length <= rest ? rest - piece.text.length : 0;
    kept.unshift({ ...piece, text });
  }
  return { pieces: kept, hidden: total - kept.reduce((sum, { text }) => sum + text.length, 0) };
}

/** From the next line after this place, or from the place if the line is too long to skip. */
function fromLine(text: string, place: number): string {
  const line = text.indexOf("\n", place) + 1;
  return text.slice(line > 0 && line < text.length ? line : place);
}
