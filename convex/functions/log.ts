// The log of a conversation: rows of records, and where it ends.
import { v } from "convex/values";
import { mutation, query, type Doc, type Reader, type Writer } from "./functions";
import { READ_CHARACTERS, READ_ROWS, REMOVE_CHARACTERS, REMOVE_ROWS } from "./limits";
import { mayHaveMail } from "./mail";
import { isRemoved, logOf } from "./rows";

/** A row of records as the server sends it. */
export const line = v.object({
  first: v.string(),
  last: v.string(),
  part: v.number(),
  more: v.boolean(),
  base64: v.boolean(),
  text: v.string(),
});

/**
 * The rows after a position that hold about this many characters, and whether there may be more. A record is never cut
 * off. The name of the log tells whether it is still the same one.
 */
export async function rowsAfter(db: Reader, conversation: string, after: bigint, characters: number) {
  const name = (await logOf(db, conversation))?._id ?? null;
  const rows = db
    .query("lines")
    .withIndex("by_last", (r) => r.eq("conversation", conversation).gt("last", after));
  const most = Math.min(characters, READ_CHARACTERS);
  const lines = [];
  let size = 0;
  for await (const row of rows) {
    const { more, base64, text } = row;
    lines.push({ first: String(row.first), last: String(row.last), more, base64, text });
    size += text.length;
    if (!more && (size > most || lines.length >= READ_ROWS)) return { name, lines, more: true };
  }
  return { name, lines, more: false };
}

export const read = query({
  args: { conversation: v.string(), after: v.string(), characters: v.number() },
  handler: async ({ db }, { conversation, after, characters }) => {
    if (await isRemoved(db, conversation)) return { name: null, lines: [], more: false };
    return await rowsAfter(db, conversation, BigInt(after), characters);
  },
});

/** Where these logs end, and whether mail may have arrived: what an instance looks for again and again. */
export const news = query({
  args: { conversations: v.array(v.string()), instance: v.string() },
  handler: async ({ db }, { conversations, instance }) => {
    const ends: string[] = [];
    for (const conversation of conversations) {
      ends.push(String((await logOf(db, conversation))?.last ?? 0n));
    }
    return { ends, mail: await mayHaveMail(db, instance) };
  },
});

/** One step: returns whether there may be more to remove. */
export const trim = mutation({
  args: { conversation: v.string(), first: v.string(), last: v.string() },
  handler: async ({ db }, { conversation, ...range }) => {
    const [first, last] = [BigInt(range.first), BigInt(range.last)];
    const rows = db
      .query("lines")
      .withIndex("by_last", (r) => r.eq("conversation", conversation).gte("last", first));
    const found: Doc<"lines">[] = [];
    let characters = 0;
    let rest = false;
    for await (const row of rows) {
      if (row.first > last) break;
      found.push(row);
      characters += row.text.length;
      // A record goes as a whole, because the rest of it could be read before the next step.
      rest = !row.more && (found.length >= REMOVE_ROWS || characters > REMOVE_CHARACTERS);
      if (rest) break;
    }
    for (const row of found) await cut(db, row, first, last);
    return rest;
  },
});

/** Removes the records from `first` to `last` from a row. What is in base64 or in parts is a single record. */
async function cut(db: Writer, row: Doc<"lines">, first: bigint, last: bigint): Promise<void> {
  await db.delete(row._id);
  if (row.first === row.last) return;
  const { conversation, part, more, base64 } = row;
  const records = row.text.split("\n");
  const keep = async (from: number, to: number) => {
    if (from >= to) return;
    const text = records.slice(from, to).join("\n");
    const range = { first: row.first + BigInt(from), last: row.first + BigInt(to) - 1n };
    await db.insert("lines", { conversation, ...range, part, more, base64, text });
  };
  await keep(0, first > row.first ? Number(first - row.first) : 0);
  await keep(last < row.last ? Number(last - row.first) + 1 : records.length, records.length);
}
