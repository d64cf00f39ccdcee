/**
 * How long the model thought, as measured by this browser. The transcript does not say, so the newest times are
 * kept here. A thought that nobody watched has no time.
 */

import { readStored, store } from "../shell/stored";

const NAME = "thoughts";
const KEPT = 100;

const began = new Map<string, number>();
const known = new Map<string, Map<string, number>>();

export function thoughtBegan(id: string, since: string | null): void {
  const now = Date.now();
  if (!began.has(id)) began.set(id, since === null ? now : Math.min(now, Date.parse(since)));
}

export function thoughtEnded(user: string, id: string): void {
  const start = began.get(id);
  if (start === undefined) return;
  began.delete(id);
  const all = read(user).set(id, Date.now() - start);
  for (const old of [...all.keys()].slice(0, Math.max(0, all.size - KEPT))) all.delete(old);
  store(user, NAME, JSON.stringify([...all]));
}

export function thoughtMs(user: string, id: string): number | null {
  const start = began.get(id);
  return read(user).get(id) ?? (start === undefined ? null : Date.now() - start);
}

function read(user: string): Map<string, number> {
  const times = known.get(user) ?? parse(readStored(user, NAME));
  known.set(user, times);
  return times;
}

function parse(text: string | null): Map<string, number> {
  try {
    const stored: unknown = JSON.parse(text ?? "[]");
    return new Map(Array.isArray(stored) ? stored.filter(isEntry) : []);
  } catch {
    return new Map();
  }
}

function isEntry(entry: unknown): entry is [string, number] {
  return Array.isArray(entry) && typeof entry[0] === "string" && typeof entry[1] === "number";
}
