/** The store of a conversation as a hook. */

import { useState, useSyncExternalStore } from "react";
import type { OutlastClient } from "../client.js";
import type { Conversation, ConversationSnapshot } from "../conversation.js";
import { useOutlast } from "./provider.js";

export interface UseConversation extends ConversationSnapshot {
  /** The store itself. */
  readonly conversation: Conversation;
  readonly send: Conversation["send"];
  readonly resend: Conversation["resend"];
  readonly discard: Conversation["discard"];
  readonly cancel: Conversation["cancel"];
  readonly resume: Conversation["resume"];
  readonly dismiss: Conversation["dismiss"];
  readonly retry: Conversation["retry"];
  readonly submitApproval: Conversation["submitApproval"];
  readonly rename: Conversation["rename"];
  readonly remove: Conversation["remove"];
  readonly loadOlder: Conversation["loadOlder"];
  readonly reconnect: Conversation["reconnect"];
}

/**
 * Follows a conversation while the component is mounted. Null is a new conversation: the first `send` creates it and
 * sets `id`. Pass that id from then on, and the hook continues with the same store.
 */
export function useConversation(id: string | null): UseConversation {
  const conversation = useStore(id);
  const snapshot = useSyncExternalStore(
    conversation.subscribe,
    conversation.snapshot,
    conversation.initialSnapshot,
  );
  return { ...snapshot, ...actionsOf(conversation) };
}

interface Held {
  readonly client: OutlastClient;
  readonly id: string | null;
  readonly store: Conversation;
}

/** Held in state, not in a memo: React may drop memos, and a new conversation must not be lost. */
function useStore(id: string | null): Conversation {
  const client = useOutlast();
  const make = (): Held => ({
    client,
    id,
    store: id === null ? client.newConversation() : client.conversation(id),
  });
  const [held, hold] = useState(make);
  if (held.client === client && held.id === id) return held.store;
  const next = make();
  hold(next);
  return next.store;
}

type Actions = Omit<UseConversation, keyof ConversationSnapshot>;

const known = new WeakMap<Conversation, Actions>();

/** The same functions for the same store, so that they can be passed as props without a memo. */
function actionsOf(conversation: Conversation): Actions {
  let actions = known.get(conversation);
  if (actions === undefined) {
    actions = {
      conversation,
      send: (content, options) => conversation.send(content, options),
      resend: (requestId, options) => conversation.resend(requestId, options),
      discard: (requestId) => conversation.discard(requestId),
      cancel: (generationId) => conversation.cancel(generationId),
      resume: () => conversation.resume(),
      dismiss: () => conversation.dismiss(),
      retry: (mode) => conversation.retry(mode),
      submitApproval: (shown, approval) => conversation.submitApproval(shown, approval),
      rename: (title) => conversation.rename(title),
      remove: () => conversation.remove(),
      loadOlder: (limit) => conversation.loadOlder(limit),
      reconnect: () => conversation.reconnect(),
    };
    known.set(conversation, actions);
  }
  return actions;
}
