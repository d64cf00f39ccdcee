/** The view of a conversation: everything needed to show it. The server's fold of the log gives the same view. */

import type { ConversationView as View, Message, Part } from "./generated/api.js";

export type {
  ActiveRun,
  ConversationView as View,
  LastEnd as GenerationEnd,
  QueuedRun,
  ScheduledRetry,
} from "./generated/api.js";

/** The view of a conversation before its first event. */
export function emptyView(id: string, createdAt: string): View {
  return {
    conversation: {
      id,
      title: null,
      metadata: null,
      generationStatus: "idle",
      currentGenerationId: null,
      sandboxId: null,
      sandboxUrl: null,
      files: [],
      createdAt,
      updatedAt: createdAt,
      lastSeq: 0,
    },
    messages: [],
    hasMore: false,
    activeRun: null,
    lastEnd: null,
    queue: [],
    overlays: {},
    overlayParts: {},
    lastSeq: 0,
  };
}

/** The text of a message without thinking, even while it is being written. */
export function textOf(view: View, message: Message): string {
  return view.overlays[message.id] ?? message.content;
}

/** The parts of a message, even while it is being written. */
export function partsOf(view: View, message: Message): readonly Part[] {
  return view.overlayParts[message.id] ?? message.parts;
}
