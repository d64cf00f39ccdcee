// Mail between instances. The owner of a conversation replies in the append that carries the request out.
import { v } from "convex/values";
import { mutation, query, type Doc, type Reader, type Writer } from "./functions";
import { MAIL_CONVERSATIONS, MAIL_ROWS, REMOVE_CHARACTERS, REMOVE_ROWS } from "./limits";
import { isLive, ownerOf } from "./rows";
import { readText, removeText, short, writeText } from "./texts";

function byId(db: Reader, id: string) {
  return db
    .query("mail")
    .withIndex("by_key", (r) => r.eq("id", id))
    .first();
}

/** Unanswered mail whose sender has a lease, oldest first. */
async function letters(db: Writer, conversation: string, most: number) {
  const unanswered = db
    .query("mail")
    .withIndex("by_conversation", (r) => r.eq("answered", false).eq("conversation", conversation));
  const live = new Map<string, boolean>();
  const found = [];
  let looked = 0;
  for await (const letter of unanswered) {
    const known = live.get(letter.sender) ?? (await isLive(db, letter.sender));
    live.set(letter.sender, known);
    if (known) found.push(letter);
    looked += 1;
    if (found.length === most || looked === MAIL_ROWS) break;
  }
  return found;
}

export async function hasMail(db: Writer, conversation: string): Promise<boolean> {
  return (await letters(db, conversation, 1)).length > 0;
}

/** A reply to mail that was forgotten is dropped, and the first reply stays. */
export async function answer(db: Writer, id: string, reply: string): Promise<void> {
  const letter = await byId(db, id);
  if (letter === null || letter.answered) return;
  await db.patch(letter._id, { answered: true, reply: short(reply) });
  await writeText(db, letter._id, "reply", reply);
}

async function drop(db: Writer, letter: Doc<"mail">): Promise<number> {
  const body = await removeText(db, letter._id, "body", letter.body);
  const reply = await removeText(db, letter._id, "reply", letter.reply);
  await db.delete(letter._id);
  return body + reply;
}

/** One step of dropping what an instance has sent. Returns whether all of it is gone. */
export async function dropMail(db: Writer, sender: string): Promise<boolean> {
  const sent = await db
    .query("mail")
    .withIndex("by_sender", (r) => r.eq("sender", sender))
    .take(REMOVE_ROWS);
  let characters = 0;
  for (const letter of sent) {
    characters += await drop(db, letter);
    if (characters > REMOVE_CHARACTERS) return false;
  }
  return sent.length < REMOVE_ROWS;
}

export const send = mutation({
  args: { id: v.string(), conversation: v.string(), sender: v.string(), body: v.string() },
  handler: async ({ db }, { body, ...letter }) => {
    if ((await byId(db, letter.id)) !== null) return null;
    const row = await db.insert("mail", { ...letter, answered: false, body: short(body) });
    await writeText(db, row, "body", body);
    return null;
  },
});

/** Unanswered mail as [id, body], oldest first: at most `most`, and not much more than `characters`. */
export const list = mutation({
  args: { conversation: v.string(), most: v.number(), characters: v.number() },
  handler: async ({ db }, { conversation, most, characters }) => {
    const found: { id: string; body: string }[] = [];
    let size = 0;
    for (const letter of await letters(db, conversation, most)) {
      if (size > characters) break;
      const body = await readText(db, letter._id, "body", letter.body);
      size += body.length;
      found.push({ id: letter.id, body });
    }
    return found;
  },
});

/** One step: the conversations after `after` that this instance holds and that have mail; `rest` if there are more. */
export const waiting = mutation({
  args: { instance: v.string(), after: v.string() },
  handler: async ({ db }, { instance, after }) => {
    const found: string[] = [];
    let reached = after;
    for (let looked = 0; looked < MAIL_CONVERSATIONS; looked += 1) {
      const from = reached;
      const next = await db
        .query("mail")
        .withIndex("by_conversation", (r) => r.eq("answered", false).gt("conversation", from))
        .first();
      if (next === null) return { found, rest: null };
      reached = next.conversation;
      const owner = await ownerOf(db, reached);
      if (owner?.instance === instance && (await hasMail(db, reached))) found.push(reached);
    }
    return { found, rest: reached };
  },
});

export const reply = query({
  args: { id: v.string() },
  handler: async ({ db }, { id }) => {
    const letter = await byId(db, id);
    if (letter?.reply === undefined) return null;
    return await readText(db, letter._id, "reply", letter.reply);
  },
});

export const forget = mutation({
  args: { id: v.string(), sender: v.string() },
  handler: async ({ db }, { id, sender }) => {
    const letter = await byId(db, id);
    if (letter?.sender === sender) await drop(db, letter);
    return null;
  },
});

/** Whether anybody waits for a reply, or there is one for this instance. */
export async function mayHaveMail(db: Reader, instance: string): Promise<boolean> {
  const unanswered = await db
    .query("mail")
    .withIndex("by_conversation", (r) => r.eq("answered", false))
    .first();
  if (unanswered !== null) return true;
  const reply = await db
    .query("mail")
    .withIndex("by_sender", (r) => r.eq("sender", instance).eq("answered", true))
    .first();
  return reply !== null;
}
