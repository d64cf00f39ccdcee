/** The current generation of a view, in the shape that an interface shows. */

import type { EndEvent } from "./event.js";
import type { ConversationStatus, Generation, GenerationStatus, PendingApproval } from "./generation.js";
import type { Part } from "./message.js";
import { partsOf } from "./view.js";
import type { View } from "./view.js";

/** How a generation ended. */
export interface GenerationEnd {
  readonly generationId: string;
  readonly status: "completed" | "cancelled" | "error";
  /** Why the model stopped, why it was cancelled, or the code of the failure. */
  readonly reason: string | null;
  /** For a person, if it failed. */
  readonly errorMessage: string | null;
}

/** Why a run waits before its next attempt. */
export interface ScheduledRetry {
  readonly attempt: number;
  readonly delayMs: number;
  readonly reason: string;
  /** From when `delayMs` counts. */
  readonly ts: string;
}

/** The generation under way, or else the last one. */
export interface GenerationState {
  readonly id: string;
  readonly status: GenerationStatus;
  /** What was said so far, thinking and text apart. */
  readonly contentParts: readonly Part[];
  readonly pendingApproval: PendingApproval | null;
  /** Known while it is under way. */
  readonly model: string | null;
  readonly attempt: number | null;
  readonly startedAt: string | null;
  readonly retry: ScheduledRetry | null;
  readonly endReason: string | null;
  readonly errorMessage: string | null;
}

export function endOf({ generationId, type, payload }: EndEvent): GenerationEnd {
  const end = { generationId: generationId ?? "", errorMessage: null };
  switch (type) {
    case "chat.done":
      return { ...end, status: "completed", reason: payload.finishReason };
    case "chat.cancelled":
      return { ...end, status: "cancelled", reason: payload.reason };
    case "chat.error":
      return { ...end, status: "error", reason: payload.code, errorMessage: payload.errorMessage };
  }
}

/** How a generation that was read as a document ended; null if it did not. */
export function endOfDocument(generation: Generation): GenerationEnd | null {
  const { status } = generation;
  if (status !== "completed" && status !== "cancelled" && status !== "error") return null;
  return {
    generationId: generation.id,
    status,
    reason: generation.endReason,
    errorMessage: generation.errorMessage,
  };
}

export function generationOf(
  view: View,
  lastEnd: GenerationEnd | null,
  retry: ScheduledRetry | null,
): GenerationState | null {
  const id = view.conversation.currentGenerationId;
  if (id === null) return null;
  const run = view.activeRun?.generationId === id ? view.activeRun : null;
  const end = run === null && lastEnd?.generationId === id ? lastEnd : null;
  const status = run?.status ?? statusOf(view.conversation.generationStatus);
  const { model = null, attempt = null, startedAt = null, pendingApproval = null } = run ?? {};
  return {
    id,
    status,
    contentParts: said(view, id),
    pendingApproval,
    model,
    attempt,
    startedAt,
    retry: run && retry,
    endReason: end?.reason ?? null,
    errorMessage: end?.errorMessage ?? null,
  };
}

/** Its messages stand at the end, so that the search begins there; its question stands before them all. */
function said(view: View, generationId: string): readonly Part[] {
  const parts: (readonly Part[])[] = [];
  for (let place = view.messages.length - 1; place >= 0; place -= 1) {
    const message = view.messages[place];
    if (message === undefined || message.generationId !== generationId) continue;
    if (message.role === "user") break;
    parts.unshift(partsOf(view, message));
  }
  return parts.flat();
}

/** The same in a generation's words. */
function statusOf(status: ConversationStatus): GenerationStatus {
  if (status === "complete") return "completed";
  return status === "idle" || status === "generating" ? "running" : status;
}
