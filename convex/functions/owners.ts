// Who owns a conversation, and until when an instance keeps what it owns.
import { v } from "convex/values";
import { mutation, type Writer } from "./functions";
import { REMOVE_ROWS } from "./limits";
import { dropMail, hasMail } from "./mail";
import { isLive, isRemoved, leaseOf, newestFence, ownerOf } from "./rows";

async function setFence(db: Writer, latest: bigint): Promise<void> {
  const row = await db.query("fences").first();
  if (row === null) await db.insert("fences", { latest });
  else await db.patch(row._id, { latest });
}

export const claim = mutation({
  args: { conversation: v.string(), instance: v.string() },
  handler: async ({ db }, { conversation, instance }) => {
    if (await isRemoved(db, conversation)) return { answer: "removing", value: "" };
    const owner = await ownerOf(db, conversation);
    if (owner !== null && owner.instance !== instance && (await isLive(db, owner.instance))) {
      return { answer: "held", value: owner.instance };
    }
    const fence = (await newestFence(db)) + 1n;
    await setFence(db, fence);
    if (owner === null) await db.insert("owners", { conversation, fence, instance });
    else await db.patch(owner._id, { fence, instance });
    return { answer: "yours", value: String(fence) };
  },
});

/** Returns whether mail is waiting. */
export const release = mutation({
  args: { conversation: v.string(), fence: v.string(), instance: v.string() },
  handler: async ({ db }, { conversation, fence, instance }) => {
    const owner = await ownerOf(db, conversation);
    if (owner?.instance === instance && owner.fence === BigInt(fence)) await db.delete(owner._id);
    return await hasMail(db, conversation);
  },
});

export const raiseFences = mutation({
  args: { fence: v.string() },
  handler: async ({ db }, { fence }) => {
    const [wanted, latest] = [BigInt(fence), await newestFence(db)];
    if (wanted <= latest) return String(latest);
    await setFence(db, wanted);
    return String(wanted);
  },
});

export const renew = mutation({
  args: { instance: v.string(), leaseMs: v.number() },
  handler: async ({ db }, { instance, leaseMs }) => {
    const [lease, expires] = [await leaseOf(db, instance), Date.now() + leaseMs];
    if (lease === null) await db.insert("leases", { instance, expires });
    else await db.patch(lease._id, { expires });
    return null;
  },
});

/** The other instances with a valid lease. */
export const others = mutation({
  args: { instance: v.string() },
  handler: async ({ db }, { instance }) => {
    const now = Date.now();
    const live = await db
      .query("leases")
      .withIndex("by_expires", (r) => r.gt("expires", now))
      .collect();
    const names = live.map((lease) => lease.instance);
    return names.filter((name) => name !== instance).sort();
  },
});

/** Instances whose lease expired this long ago. */
export const longGone = mutation({
  args: { ageMs: v.number() },
  handler: async ({ db }, { ageMs }) => {
    const limit = Date.now() - ageMs;
    const gone = await db
      .query("leases")
      .withIndex("by_expires", (r) => r.lt("expires", limit))
      .take(REMOVE_ROWS);
    return gone.map((lease) => lease.instance);
  },
});

/** One step: returns whether there may be more. The lease ends with the first, so others may take over at once. */
export const leave = mutation({
  args: { instance: v.string() },
  handler: async ({ db }, { instance }) => {
    const lease = await leaseOf(db, instance);
    if (lease !== null) await db.delete(lease._id);
    const held = await db
      .query("owners")
      .withIndex("by_instance", (r) => r.eq("instance", instance))
      .take(REMOVE_ROWS);
    for (const owner of held) await db.delete(owner._id);
    const finished = await dropMail(db, instance);
    return held.length === REMOVE_ROWS || !finished;
  },
});
