// The append: records, documents, replies and limits in one transaction.
import { v, type Infer } from "convex/values";
import { document, put, remove } from "./documents";
import { mutation, refuse, type Writer } from "./functions";
import { line } from "./log";
import { answer } from "./mail";
import { logOf, newestFence, ownerOf } from "./rows";
import { table } from "./schema";

const change = v.union(
  v.object({ put: document }),
  v.object({ remove: v.object({ table, id: v.string() }) }),
);

/** A maximum number of documents with one of these statuses, of one user or of all. */
const limit = v.object({
  table,
  user: v.union(v.string(), v.null()),
  statuses: v.array(v.string()),
  atMost: v.number(),
});

export const append = mutation({
  args: {
    conversation: v.string(),
    instance: v.string(),
    fence: v.string(),
    expected: v.string(),
    last: v.string(),
    lines: v.array(line),
    changes: v.array(change),
    replies: v.array(v.object({ id: v.string(), body: v.string() })),
    limits: v.array(limit),
  },
  handler: async ({ db }, { conversation, instance, ...wanted }) => {
    const owner = await ownerOf(db, conversation);
    if (owner === null || owner.instance !== instance || owner.fence !== BigInt(wanted.fence)) {
      return { answer: "fenced", value: String(owner?.fence ?? (await newestFence(db))) };
    }
    const log = await logOf(db, conversation);
    const last = log?.last ?? 0n;
    if (last !== BigInt(wanted.expected)) return { answer: "conflict", value: String(last) };

    for (const line of wanted.lines) {
      await db.insert("lines", { ...line, conversation, first: BigInt(line.first), last: BigInt(line.last) });
    }
    if (wanted.lines.length > 0) {
      const end = { conversation, last: BigInt(wanted.last) };
      if (log === null) await db.insert("logs", end);
      else await db.replace(log._id, end);
    }
    for (const change of wanted.changes) {
      if ("put" in change) await put(db, change.put);
      else await remove(db, change.remove.table, change.remove.id);
    }
    for (const { id, body } of wanted.replies) await answer(db, id, body);
    // The transaction sees its own changes, and is undone if they are too many.
    for (const [position, limit] of wanted.limits.entries()) {
      if (await isOver(db, limit)) refuse("over", String(position));
    }
    return { answer: "written", value: wanted.last };
  },
});

async function isOver(db: Writer, { table, user, statuses, atMost }: Infer<typeof limit>): Promise<boolean> {
  let room = atMost;
  for (const status of statuses) {
    const documents = db.query("documents");
    const found =
      user === null
        ? documents.withIndex("by_status", (r) => r.eq("table", table).eq("status", status))
        : documents.withIndex("by_user_status", (r) =>
            r.eq("table", table).eq("user", user).eq("status", status),
          );
    room -= (await found.take(room + 1)).length;
    if (room < 0) return true;
  }
  return false;
}
