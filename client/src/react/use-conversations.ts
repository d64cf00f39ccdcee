/** The list of conversations as a hook. */

import { useSyncExternalStore } from "react";
import { conversationList } from "../conversation-list.js";
import type { ConversationList, ConversationListSnapshot } from "../conversation-list.js";
import { useOutlast } from "./provider.js";

export interface UseConversations extends ConversationListSnapshot {
  /** The store itself: `refresh`, `loadMore`, `rename`, `remove`. */
  readonly list: ConversationList;
}

export function useConversations(): UseConversations {
  const list = conversationList(useOutlast());
  return { ...useSyncExternalStore(list.subscribe, list.snapshot, list.initialSnapshot), list };
}
