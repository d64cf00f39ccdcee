// Items: data outside of conversations. A write names the version it replaces.
import { v } from "convex/values";
import { mutation, query, type Doc, type Reader } from "./functions";
import { SCAN_ROWS } from "./limits";
import { readText, removeText, short, writeText } from "./texts";

const given = v.union(v.string(), v.null());

function find(db: Reader, kind: string, id: string) {
  return db
    .query("items")
    .withIndex("by_key", (r) => r.eq("kind", kind).eq("id", id))
    .first();
}

async function whole(db: Reader, row: Doc<"items">) {
  const { id, user, place, due } = row;
  const body = await readText(db, row._id, "body", row.body);
  return { id, user, place, due: due ?? null, version: String(row.version), body };
}

/** Returns the new version, or null if another one is stored. */
export const put = mutation({
  args: {
    kind: v.string(),
    id: v.string(),
    user: v.string(),
    place: v.string(),
    due: given,
    version: v.string(),
    bytes: v.number(),
    body: v.string(),
  },
  handler: async ({ db }, { body, due, ...keys }) => {
    const old = await find(db, keys.kind, keys.id);
    if ((old?.version ?? 0n) !== BigInt(keys.version)) return null;
    const version = BigInt(keys.version) + 1n;
    const row = { ...keys, version, body: short(body), ...(due === null ? {} : { due }) };
    let id = old?._id;
    if (old === null || id === undefined) {
      id = await db.insert("items", row);
    } else {
      await removeText(db, id, "body", old.body);
      await db.replace(id, row);
    }
    await writeText(db, id, "body", body);
    return String(version);
  },
});

export const get = query({
  args: { kind: v.string(), id: v.string() },
  handler: async ({ db }, { kind, id }) => {
    const row = await find(db, kind, id);
    return row === null ? null : await whole(db, row);
  },
});

/** Returns whether there was one. */
export const remove = mutation({
  args: { kind: v.string(), id: v.string() },
  handler: async ({ db }, { kind, id }) => {
    const row = await find(db, kind, id);
    if (row === null) return false;
    await removeText(db, row._id, "body", row.body);
    await db.delete(row._id);
    return true;
  },
});

/** One step of a list: the items that match, one more than fits, and where to go on if there may be more. */
export const list = query({
  args: {
    kind: v.string(),
    user: given,
    dueUntil: given,
    after: given,
    limit: v.number(),
    maxBytes: v.number(),
  },
  handler: async ({ db }, { kind, user, dueUntil, after, limit, maxBytes }) => {
    const items = [];
    let [size, looked] = [0, 0];
    for await (const row of candidates(db, kind, { user, dueUntil, after })) {
      looked += 1;
      let full = looked === SCAN_ROWS;
      if (user === null || user === row.user) {
        items.push(await whole(db, row));
        size += row.bytes;
        full ||= items.length > limit || (size > maxBytes && items.length > 1);
      }
      if (full) return { items, rest: dueUntil === null ? row.place : (row.due ?? null) };
    }
    return { items, rest: null };
  },
});

/** Sorts after every `place`, which begins with a hexadecimal digit. */
const END = "g";

function candidates(
  db: Reader,
  kind: string,
  { user, dueUntil, after }: { user: string | null; dueUntil: string | null; after: string | null },
) {
  const items = db.query("items");
  if (dueUntil !== null) {
    return items.withIndex("by_due", (r) =>
      r
        .eq("kind", kind)
        .gt("due", after ?? "")
        .lte("due", dueUntil),
    );
  }
  const before = after ?? END;
  if (user !== null) {
    return items
      .withIndex("by_user", (r) => r.eq("kind", kind).eq("user", user).lt("place", before))
      .order("desc");
  }
  return items.withIndex("by_place", (r) => r.eq("kind", kind).lt("place", before)).order("desc");
}

/** The kinds of all items. There are few, and each is found by skipping the items of the one before. */
export const kinds = query({
  args: {},
  handler: async ({ db }) => {
    const found: string[] = [];
    for (;;) {
      const last = found.at(-1) ?? "";
      const next = await db
        .query("items")
        .withIndex("by_key", (r) => r.gt("kind", last))
        .first();
      if (next === null) return found;
      found.push(next.kind);
    }
  },
});
