// Deleting a conversation: it is invisible at once, and its rows are removed in steps.
import { v } from "convex/values";
import { removeRow } from "./documents";
import { mutation, type Writer } from "./functions";
import { REMOVE_CHARACTERS, REMOVE_ROWS } from "./limits";
import { isRemoved, logOf, ownerOf, removalOf } from "./rows";

/** From here on nobody sees it. The fence is kept, so an owner that is still writing is refused. */
export const begin = mutation({
  args: { conversation: v.string() },
  handler: async ({ db }, { conversation }) => {
    const owner = await ownerOf(db, conversation);
    if (owner !== null) await db.delete(owner._id);
    const log = await logOf(db, conversation);
    if (log !== null) await db.delete(log._id);
    if (!(await isRemoved(db, conversation))) await db.insert("removals", { conversation });
    return null;
  },
});

/** One step: returns whether there may be more. */
export const step = mutation({
  args: { conversation: v.string() },
  handler: async ({ db }, { conversation }) => {
    const removal = await removalOf(db, conversation);
    if (removal === null) return false;
    for (const table of ["conversations", "generations", "messages"] as const) {
      const rows = await db
        .query("documents")
        .withIndex("by_conversation", (r) => r.eq("table", table).eq("conversation", conversation))
        .take(REMOVE_ROWS);
      let characters = 0;
      for (const row of rows) {
        characters += await removeRow(db, row);
        if (characters > REMOVE_CHARACTERS) return true;
      }
      if (rows.length > 0) return true;
    }
    if (await removeLines(db, conversation)) return true;
    await db.delete(removal._id);
    return false;
  },
});

/** Returns whether there may be more. */
async function removeLines(db: Writer, conversation: string): Promise<boolean> {
  const rows = db.query("lines").withIndex("by_last", (r) => r.eq("conversation", conversation));
  const found = [];
  let characters = 0;
  for await (const row of rows) {
    found.push(row._id);
    characters += row.text.length;
    if (found.length === REMOVE_ROWS || characters > REMOVE_CHARACTERS) break;
  }
  for (const id of found) await db.delete(id);
  return found.length === REMOVE_ROWS || characters > REMOVE_CHARACTERS;
}
