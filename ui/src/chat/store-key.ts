/**
 * A key for each conversation that is watched. Its id will not do: a new conversation gets its id in the
 * middle of its first message, and what is typed and shown must not be thrown away then.
 */

import type { Conversation } from "@outlast/client";

const keys = new WeakMap<Conversation, number>();
let last = 0;

export function keyOf(conversation: Conversation): number {
  const key = keys.get(conversation) ?? (last += 1);
  keys.set(conversation, key);
  return key;
}
