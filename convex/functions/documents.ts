// Documents: put and removed by appends, found by their keys.
import { v, type Infer } from "convex/values";
import { mutation, query, refuse, type Doc, type Reader, type Writer } from "./functions";
import { LOAD_BYTES, READ_CHARACTERS } from "./limits";
import { rowsAfter } from "./log";
import { isLive, isRemoved, logOf, ownerOf } from "./rows";
import { table } from "./schema";
import { matching, selection } from "./selection";
import { readText, removeText, short, writeText } from "./texts";

const text = v.union(v.string(), v.null());

/** A document as the server sends it. Without a state, a conversation keeps the one it has. */
export const document = v.object({
  table,
  id: v.string(),
  conversation: v.string(),
  user: v.string(),
  seq: v.string(),
  place: v.string(),
  due: text,
  status: v.string(),
  request: v.string(),
  tags: v.array(v.string()),
  bytes: v.number(),
  body: v.string(),
  state: text,
});

type Table = Infer<typeof table>;

function find(db: Reader, table: Table, id: string) {
  return db
    .query("documents")
    .withIndex("by_key", (r) => r.eq("table", table).eq("id", id))
    .first();
}

export async function put(db: Writer, { body, state, due, ...keys }: Infer<typeof document>): Promise<void> {
  const old = await find(db, keys.table, keys.id);
  const keepsState = keys.table === "conversations" && state === null;
  if (keepsState && old === null) refuse("stateless", keys.id);
  const kept = keepsState ? old?.state : state === null ? undefined : short(state);
  const row = {
    ...keys,
    seq: keepsState && old !== null ? old.seq : BigInt(keys.seq),
    body: short(body),
    ...(due === null ? {} : { due }),
    ...(kept === undefined ? {} : { state: kept }),
  };
  let id = old?._id;
  if (old === null || id === undefined) {
    id = await db.insert("documents", row);
  } else {
    await removeText(db, id, "body", old.body);
    if (!keepsState) await removeText(db, id, "state", old.state);
    await db.replace(id, row);
  }
  await writeText(db, id, "body", body);
  if (state !== null) await writeText(db, id, "state", state);
  await tag(db, id, old, row);
}

/** Writes the rows of tags, if they differ. */
async function tag(
  db: Writer,
  document: Doc<"documents">["_id"],
  old: Doc<"documents"> | null,
  { user, place, tags }: { user: string; place: string; tags: string[] },
): Promise<void> {
  const same = old !== null && old.user === user && old.place === place && String(old.tags) === String(tags);
  if (same && old.tags.length === tags.length) return;
  if (old !== null && old.tags.length > 0) await untag(db, document);
  for (const tag of tags) await db.insert("tags", { document, user, tag, place });
}

async function untag(db: Writer, document: Doc<"documents">["_id"]): Promise<void> {
  const rows = await db
    .query("tags")
    .withIndex("by_document", (r) => r.eq("document", document))
    .collect();
  for (const row of rows) await db.delete(row._id);
}

export async function remove(db: Writer, table: Table, id: string): Promise<void> {
  const row = await find(db, table, id);
  if (row !== null) await removeRow(db, row);
}

/** Removes a document with all that belongs to it, and returns about how many characters that were. */
export async function removeRow(db: Writer, row: Doc<"documents">): Promise<number> {
  if (row.tags.length > 0) await untag(db, row._id);
  const body = await removeText(db, row._id, "body", row.body);
  const state = await removeText(db, row._id, "state", row.state);
  await db.delete(row._id);
  return body + state;
}

/** A document as the server reads it, with its state if that is asked for. */
async function whole(db: Reader, row: Doc<"documents">, withState: boolean) {
  const { id, conversation, user, place, status, request, tags } = row;
  const state = withState && row.state !== undefined ? await readText(db, row._id, "state", row.state) : null;
  const body = await readText(db, row._id, "body", row.body);
  const keys = { id, conversation, user, place, due: row.due ?? null, status, request, tags };
  return { ...keys, seq: String(row.seq), body, state };
}

export const get = query({
  args: { table, id: v.string() },
  handler: async ({ db }, { table, id }) => {
    const row = await find(db, table, id);
    if (row === null || (await isRemoved(db, row.conversation))) return null;
    return await whole(db, row, true);
  },
});

async function page(
  db: Reader,
  wanted: Infer<typeof selection>,
  isFree?: (row: Doc<"documents">) => Promise<boolean>,
) {
  const { rows, rest } = await matching(db, wanted, isFree);
  const documents = [];
  for (const row of rows) documents.push(await whole(db, row, false));
  return { documents, rest };
}

/** One step of a list: the documents that match, one more than fits, and where to go on if there may be more. */
export const list = query({
  args: selection.fields,
  handler: async ({ db }, wanted) => await page(db, wanted),
});

/** The same for documents whose conversation nobody holds. It is a mutation because leases depend on the time. */
export const listUnowned = mutation({
  args: { ...selection.fields, instance: v.string() },
  handler: async ({ db }, { instance, ...wanted }) =>
    await page(db, wanted, async (row) => {
      const owner = await ownerOf(db, row.conversation);
      return owner === null || (owner.instance !== instance && !(await isLive(db, owner.instance)));
    }),
});

/** A conversation at one moment: its document, its newest messages, and the first page of the records after it. */
export const load = query({
  args: { conversation: v.string(), messages: v.number(), maxBytes: v.number() },
  handler: async ({ db }, { conversation, messages, maxBytes }) => {
    const row = await find(db, "conversations", conversation);
    if (row === null || (await isRemoved(db, row.conversation))) return null;
    const document = await whole(db, row, true);
    const newest = await newestMessages(db, conversation, messages, maxBytes);
    const read = row.bytes + 3 * (document.state?.length ?? 0) + newest.size;
    const end = await logOf(db, conversation);
    const later = { name: end?._id ?? null, lines: [], more: true };
    const log = read > LOAD_BYTES ? later : await rowsAfter(db, conversation, row.seq, READ_CHARACTERS);
    const last = String(end?.last ?? 0n);
    return { document, messages: newest.found, moreMessages: newest.more, log, last };
  },
});

/** Newest first. The text of a message that no longer fits is not read. */
async function newestMessages(db: Reader, conversation: string, most: number, maxBytes: number) {
  const newest = db
    .query("documents")
    .withIndex("by_conversation", (r) => r.eq("table", "messages").eq("conversation", conversation))
    .order("desc");
  const found = [];
  let size = 0;
  for await (const message of newest) {
    const fits = found.length === 0 || size + message.bytes <= maxBytes;
    if (found.length === most || !fits) return { found, size, more: true };
    found.push(await whole(db, message, false));
    size += message.bytes;
  }
  return { found, size, more: false };
}
