// Rows that several functions look for.
import type { Reader, Writer } from "./functions";

export function ownerOf(db: Reader, conversation: string) {
  return db
    .query("owners")
    .withIndex("by_conversation", (r) => r.eq("conversation", conversation))
    .first();
}

export function leaseOf(db: Reader, instance: string) {
  return db
    .query("leases")
    .withIndex("by_instance", (r) => r.eq("instance", instance))
    .first();
}

/** Only a mutation may ask, because a query may be answered from a cache. */
export async function isLive(db: Writer, instance: string): Promise<boolean> {
  const lease = await leaseOf(db, instance);
  return lease !== null && lease.expires > Date.now();
}

export async function newestFence(db: Reader): Promise<bigint> {
  const row = await db.query("fences").first();
  return row?.latest ?? 0n;
}

export function logOf(db: Reader, conversation: string) {
  return db
    .query("logs")
    .withIndex("by_conversation", (r) => r.eq("conversation", conversation))
    .first();
}

export function removalOf(db: Reader, conversation: string) {
  return db
    .query("removals")
    .withIndex("by_conversation", (r) => r.eq("conversation", conversation))
    .first();
}

/** Whether the conversation was deleted and its rows are still being removed. */
export async function isRemoved(db: Reader, conversation: string): Promise<boolean> {
  return (await removalOf(db, conversation)) !== null;
}
