/**
 * Remembers how each question was first shown, so that one that is asked differently under the same id is
 * recognised. Kept outside of components, because the card unmounts between the two.
 */

import type { Conversation, PendingApproval } from "@outlast/client";

interface Asked {
  readonly generationId: string;
  readonly hashes: Map<string, string | undefined>;
}

/** Only of one generation for each conversation, so that a long one does not fill the memory. */
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
