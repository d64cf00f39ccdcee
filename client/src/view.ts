/** The view of a conversation: everything needed to show it. The server's fold of the log gives the same view. */

import type { ConversationDocument, GenerationStatus, PendingApproval } from "./generation.js";
import type { Message, Part } from "./message.js";

/** The current generation, in short. */
export interface ActiveRun {
  readonly generationId: string;
  readonly requestId: string;
  readonly status: GenerationStatus;
  readonly model: string;
  readonly attempt: number;
  readonly startedAt: string | null;
  /** The number of generations in the queue. */
  readonly queued: number;
  /** The questions that wait for a person, oldest first; absent if there are none. */
  readonly pendingApprovals?: readonly PendingApproval[];
  /** The next attempt, if it waits before it starts. */
  readonly retry?: ScheduledRetry;
}

/** Why and until when a run waits before its next attempt. */
export interface ScheduledRetry {
  readonly attempt: number;
  readonly delayMs: number;
  readonly reason: string;
  /** When the delay began. */
  readonly ts: string;
}

/** How a generation ended. */
export interface GenerationEnd {
  readonly generationId: string;
  readonly status: "completed" | "cancelled" | "error";
  /** Why the model stopped, why it was cancelled, or the code of the failure. */
  readonly reason: string | null;
  /** Why it failed, for a person. */
  readonly errorMessage: string | null;
}

/** A generation in the queue, in short. */
export interface QueuedRun {
  readonly generationId: string;
  readonly requestId: string;
  readonly model: string;
}

export interface View {
  readonly conversation: ConversationDocument;
  /** The newest messages, ascending. The text of an open message is in the overlays. */
  readonly messages: readonly Message[];
  /** Whether there are older messages. */
  readonly hasMore: boolean;
  readonly activeRun: ActiveRun | null;
  /** How the last generation ended, if none is current. */
  readonly lastEnd: GenerationEnd | null;
  readonly queue: readonly QueuedRun[];
  /** The plain text of messages that are being written, by id. */
  readonly overlays: Readonly<Record<string, string>>;
  /** The parts of the same messages. */
  readonly overlayParts: Readonly<Record<string, readonly Part[]>>;
  /** The position of the last event in this view. */
  readonly lastSeq: number;
}

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
