/** The view of a conversation: everything needed to show it. The server folds its log to the same. */

import type { ConversationDocument, GenerationStatus, PendingApproval } from "./generation.js";
import type { Message, Part } from "./message.js";

/** The generation under way, in short. */
export interface ActiveRun {
  readonly generationId: string;
  readonly requestId: string;
  readonly status: GenerationStatus;
  readonly model: string;
  readonly attempt: number;
  readonly startedAt: string | null;
  /** How many wait behind it. */
  readonly queued: number;
  /** What a person is asked to decide about, oldest first; absent if nothing. */
  readonly pendingApprovals?: readonly PendingApproval[];
  /** The attempt that waits for its time; absent if none does. */
  readonly retry?: ScheduledRetry;
}

/** Why a run waits before its next attempt. */
export interface ScheduledRetry {
  readonly attempt: number;
  readonly delayMs: number;
  readonly reason: string;
  /** From when `delayMs` counts. */
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

/** A generation that waits for its turn, in short. */
export interface QueuedRun {
  readonly generationId: string;
  readonly requestId: string;
  readonly model: string;
}

export interface View {
  readonly conversation: ConversationDocument;
  /** The newest messages, ascending. The words of an open one are in the overlays. */
  readonly messages: readonly Message[];
  /** Whether there are older ones. */
  readonly hasMore: boolean;
  readonly activeRun: ActiveRun | null;
  /** How the last generation ended, while none is under way. */
  readonly lastEnd: GenerationEnd | null;
  readonly queue: readonly QueuedRun[];
  /** The plain text of the message that is being written, by its id. */
  readonly overlays: Readonly<Record<string, string>>;
  /** The same with thinking and text apart. */
  readonly overlayParts: Readonly<Record<string, readonly Part[]>>;
  /** The last event that is in this view: go on after it. */
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

/** What a message says now, without the thinking, also while it is being written. */
export function textOf(view: View, message: Message): string {
  return view.overlays[message.id] ?? message.content;
}

/** The parts of a message as they are now, also while it is being written. */
export function partsOf(view: View, message: Message): readonly Part[] {
  return view.overlayParts[message.id] ?? message.parts;
}
