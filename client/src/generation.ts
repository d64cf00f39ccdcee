/** The documents of generations and conversations. */

import type { Part } from "./message.js";

export type GenerationStatus =
  "queued" | "running" | "awaiting_approval" | "paused" | "interrupted" | "completed" | "cancelled" | "error";

export type ConversationStatus =
  "idle" | "generating" | "awaiting_approval" | "paused" | "interrupted" | "complete" | "cancelled" | "error";

/** `retry` drops the text so far, `continue` keeps it and continues from there. */
export type RetryMode = "retry" | "continue";

export type CancelReason = "user" | "superseded" | "abandoned" | "dismissed";

/** A tool call that waits for a person's decision. */
export interface PendingApproval {
  readonly toolUseId: string;
  readonly toolName: string;
  readonly toolInput: unknown;
  /** Identifies exactly this question. A decision that carries it cannot approve another one. */
  readonly hash?: string | undefined;
}

export interface RetryOf {
  readonly generationId: string;
  readonly mode: RetryMode;
}

/** The answer to a user's message, with every attempt. */
export interface Generation {
  readonly id: string;
  readonly conversationId: string;
  readonly messageId: string;
  readonly requestId: string;
  readonly status: GenerationStatus;
  /** Only in the document of one generation, not in a list. */
  readonly contentParts?: readonly Part[];
  readonly pendingApproval: PendingApproval | null;
  readonly sandboxId: string | null;
  readonly isPaused: boolean;
  readonly errorMessage: string | null;
  readonly endReason: string | null;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly chunksReceived: number;
  readonly attempt: number;
  readonly model: string;
  readonly metadata: unknown;
  readonly retryOf: RetryOf | null;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly completedAt: string | null;
  readonly firstSeq: number;
  readonly lastSeq: number;
}

/** The conversation itself, without its messages. */
export interface ConversationDocument {
  readonly id: string;
  readonly title: string | null;
  readonly metadata: unknown;
  readonly generationStatus: ConversationStatus;
  /** The generation that `generationStatus` describes: the current one, or the last one. */
  readonly currentGenerationId: string | null;
  readonly sandboxId: string | null;
  readonly sandboxUrl: string | null;
  readonly files: readonly unknown[];
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly lastSeq: number;
}

/** The statuses of a conversation without an unfinished generation. */
const AT_REST: readonly ConversationStatus[] = ["idle", "complete", "cancelled", "error"];

/** Whether a conversation has an unfinished generation. */
export function isUnderWay(status: ConversationStatus): boolean {
  return !AT_REST.includes(status);
}
