// Which documents a list has, and the index that finds them with the fewest others.
import { v, type Infer } from "convex/values";
import type { Doc, Reader } from "./functions";
import { SCAN_ROWS } from "./limits";
import { isRemoved } from "./rows";
import { table } from "./schema";

const given = v.union(v.string(), v.null());

/** A document must match every key that is given. `after` and `dueUntil` are sort keys. */
export const selection = v.object({
  table,
  user: given,
  conversation: given,
  statuses: v.array(v.string()),
  request: given,
  tag: given,
  dueUntil: given,
  after: given,
  limit: v.number(),
  maxBytes: v.number(),
});

type Selection = Infer<typeof selection>;

/** Sorts after every `place`, which begins with a hexadecimal digit. */
const END = "g";

/**
 * One step: the rows that match, one more than fits on the page, and where to go on if there may be more.
 * `isFree` leaves rows out by who owns them.
 */
export async function matching(
  db: Reader,
  wanted: Selection,
  isFree?: (row: Doc<"documents">) => Promise<boolean>,
) {
  const removing = (await db.query("removals").first()) !== null;
  const rows: Doc<"documents">[] = [];
  let [size, looked] = [0, 0];
  for await (const row of candidates(db, wanted)) {
    looked += 1;
    let full = looked === SCAN_ROWS;
    const hidden = removing && (await isRemoved(db, row.conversation));
    if (matches(wanted, row) && !hidden && (isFree === undefined || (await isFree(row)))) {
      rows.push(row);
      size += row.bytes;
      full ||= rows.length > wanted.limit || (size > wanted.maxBytes && rows.length > 1);
    }
    if (full) return { rows, rest: wanted.dueUntil === null ? row.place : (row.due ?? null) };
  }
  return { rows, rest: null };
}

function matches({ user, conversation, statuses, request, tag }: Selection, row: Doc<"documents">): boolean {
  return (
    (user === null || user === row.user) &&
    (conversation === null || conversation === row.conversation) &&
    (statuses.length === 0 || statuses.includes(row.status)) &&
    (request === null || request === row.request) &&
    (tag === null || row.tags.includes(tag))
  );
}

/** Documents in the order of the list: newest first, or longest due first. */
function candidates(db: Reader, wanted: Selection): AsyncIterable<Doc<"documents">> {
  const { table, user, conversation, statuses, request, tag, dueUntil, after } = wanted;
  if (user !== null && tag !== null && dueUntil === null) return tagged(db, user, tag, after ?? END);
  const documents = db.query("documents");
  if (dueUntil !== null) {
    return documents.withIndex("by_due", (r) =>
      r
        .eq("table", table)
        .gt("due", after ?? "")
        .lte("due", dueUntil),
    );
  }
  const before = after ?? END;
  const status = statuses.length === 1 ? (statuses[0] ?? null) : null;
  if (conversation !== null && request !== null) {
    return documents
      .withIndex("by_request", (r) =>
        r.eq("table", table).eq("conversation", conversation).eq("request", request).lt("place", before),
      )
      .order("desc");
  }
  if (conversation !== null) {
    return documents
      .withIndex("by_conversation", (r) =>
        r.eq("table", table).eq("conversation", conversation).lt("place", before),
      )
      .order("desc");
  }
  if (user !== null && status !== null) {
    return documents
      .withIndex("by_user_status", (r) =>
        r.eq("table", table).eq("user", user).eq("status", status).lt("place", before),
      )
      .order("desc");
  }
  if (user !== null) {
    return documents
      .withIndex("by_user", (r) => r.eq("table", table).eq("user", user).lt("place", before))
      .order("desc");
  }
  if (status !== null) {
    return documents
      .withIndex("by_status", (r) => r.eq("table", table).eq("status", status).lt("place", before))
      .order("desc");
  }
  return documents.withIndex("by_place", (r) => r.eq("table", table).lt("place", before)).order("desc");
}

async function* tagged(
  db: Reader,
  user: string,
  tag: string,
  before: string,
): AsyncIterable<Doc<"documents">> {
  const tags = db
    .query("tags")
    .withIndex("by_tag", (r) => r.eq("user", user).eq("tag", tag).lt("place", before))
    .order("desc");
  for await (const { document } of tags) {
    const row = await db.get(document);
    if (row !== null) yield row;
  }
}
