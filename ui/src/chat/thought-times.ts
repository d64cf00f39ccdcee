/**
 * How long the model thought, as this browser saw it. The transcript does not tell, so it is remembered here
 * for the newest thoughts. Where nobody watched, nothing is claimed.
 */

const KEY = "outlast:thoughts";
const KEPT = 100;

const began = new Map<string, number>();
let known: Map<string, number> | null = null;

export function thoughtBegan(id: string, since: string | null): void {
  const now = Date.now();
  if (!began.has(id)) began.set(id, since === null ? now : Math.min(now, Date.parse(since)));
}

export function thoughtEnded(id: string): void {
  const start = began.get(id);
  if (start === undefined) return;
  began.delete(id);
  const all = read().set(id, Date.now() - start);
  for (const old of [...all.keys()].slice(0, Math.max(0, all.size - KEPT))) all.delete(old);
  try {
    localStorage.setItem(KEY, JSON.stringify([...all]));
  } catch {
    // Then a reload forgets it.
  }
}

export function thoughtMs(id: string): number | null {
  const start = began.get(id);
  return read().get(id) ?? (start === undefined ? null : Date.now() - start);
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
