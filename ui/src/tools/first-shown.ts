/**
 * Remembers how each question was first shown, to recognise a different question under the same id. It is kept
 * outside components, because the card unmounts in between.
 */

import type { Conversation, PendingApproval } from "@outlast/client";

interface Asked {
  readonly generationId: string;
  readonly hashes: Map<string, string | undefined>;
}

/** Only one generation per conversation, so that a long conversation does not fill memory. */
const asked = new WeakMap<Conversation, Asked>();

/** Whether this is another question than the one first shown under its id. */
export function hasChanged(
  conversation: Conversation,
  generationId: string,
  { toolUseId, hash }: PendingApproval,
): boolean {
  let known = asked.get(conversation);
  if (known?.generationId !== generationId) {
    known = { generationId, hashes: new Map() };
    asked.set(conversation, known);
  }
  if (!known.hashes.has(toolUseId)) known.hashes.set(toolUseId, hash);
  return known.hashes.get(toolUseId) !== hash;
}
