/**
 * A React key for each conversation store. The conversation's id does not work: a new conversation gets its id while
 * its first message is being sent, and what is typed and shown must survive that.
 */

import type { Conversation } from "@outlast/client";

const keys = new WeakMap<Conversation, number>();
let last = 0;

export function keyOf(conversation: Conversation): number {
  const key = keys.get(conversation) ?? (last += 1);
  keys.set(conversation, key);
  return key;
}
