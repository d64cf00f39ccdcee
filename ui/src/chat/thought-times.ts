/**
 * How long the model thought, as this browser saw it. The transcript does not tell, so it is remembered here
 * for the newest messages. Where nobody watched, nothing is claimed.
 */

const KEY = "outlast:thoughts";
const KEPT = 100;

const began = new Map<string, number>();
let known: Map<string, number> | null = null;

export function thoughtBegan(messageId: string, since: string): void {
  if (!began.has(messageId)) began.set(messageId, Math.min(Date.now(), Date.parse(since)));
}

export function thoughtEnded(messageId: string): void {
  const start = began.get(messageId);
  if (start === undefined) return;
  began.delete(messageId);
  const all = read().set(messageId, Date.now() - start);
  for (const old of [...all.keys()].slice(0, Math.max(0, all.size - KEPT))) all.delete(old);
  try {
    localStorage.setItem(KEY, JSON.stringify([...all]));
  } catch {
    // Then a reload forgets it.
  }
}

export function thoughtMs(messageId: string): number | null {
  const start = began.get(messageId);
  return read().get(messageId) ?? (start === undefined ? null : Date.now() - start);
}

function read(): Map<string, number> {
  if (known !== null) return known;
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    known = new Map(Array.isArray(stored) ? stored.filter(isEntry) : []);
  } catch {
    known = new Map();
  }
  return known;
}

function isEntry(entry: unknown): entry is [string, number] {
  return Array.isArray(entry) && typeof entry[0] === "string" && typeof entry[1] === "number";
}
