// Texts of any length. Short ones are in the row they belong to; long ones are in parts in rows of their own.
import type { Reader, Writer } from "./functions";

/** Longer texts are kept apart, so that looking through an index does not read them. */
const SHORT = 2048;

/** A character takes at most three bytes, so a part takes less than the 1 MiB that Convex allows. */
const PART = 300_000;

type Name = "body" | "state" | "reply";

/** What the row itself keeps of a text. */
export function short(text: string): string | null {
  return text.length <= SHORT ? text : null;
}

/** Stores a text whose row keeps `short(text)`. */
export async function writeText(db: Writer, owner: string, name: Name, text: string): Promise<void> {
  if (short(text) !== null) return;
  for (const [part, piece] of split(text).entries()) {
    await db.insert("texts", { owner, name, part, text: piece });
  }
}

export async function readText(db: Reader, owner: string, name: Name, kept: string | null): Promise<string> {
  if (kept !== null) return kept;
  const parts = await db
    .query("texts")
    .withIndex("by_owner", (r) => r.eq("owner", owner).eq("name", name))
    .collect();
  return parts.map((part) => part.text).join("");
}

/** Removes a text, and returns about how many characters that were. */
export async function removeText(
  db: Writer,
  owner: string,
  name: Name,
  kept: string | null | undefined,
): Promise<number> {
  if (kept === undefined) return 0;
  if (kept !== null) return kept.length;
  const parts = await db
    .query("texts")
    .withIndex("by_owner", (r) => r.eq("owner", owner).eq("name", name))
    .collect();
  let characters = 0;
  for (const part of parts) {
    characters += part.text.length;
    await db.delete(part._id);
  }
  return characters;
}

function split(text: string): string[] {
  const parts: string[] = [];
  let at = 0;
  while (at < text.length) {
    let end = Math.min(at + PART, text.length);
    // The two halves of a character stay together, because Convex refuses one of them alone.
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end -= 1;
    parts.push(text.slice(at, end));
    at = end;
  }
  return parts;
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}
