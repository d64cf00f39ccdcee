/**
 * Characters that turn the direction of text can make a line read as something else than it is. Those that
 * work on what follows them (embeddings, overrides, isolates) are shown by name instead. The marks that
 * people who write Arabic or Hebrew need (LRM, RLM, ALM) stay as they are: they work on nothing else.
 */

const TURNS = /[\u202a-\u202e\u2066-\u2069]/g;

export function showTurns(text: string): string {
  return text.replace(TURNS, (turn) => `[U+${turn.charCodeAt(0).toString(16).toUpperCase()}]`);
}
