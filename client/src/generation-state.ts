/** The current generation of a view, in the shape that an interface shows. */

import type { ConversationStatus, GenerationStatus, PendingApproval } from "./generation.js";
import type { Part } from "./message.js";
import { partsOf } from "./view.js";
import type { ScheduledRetry, View } from "./view.js";

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

export function generationOf(view: View): GenerationState | null {
  const id = view.conversation.currentGenerationId;
  if (id === null) return null;
  const run = view.activeRun?.generationId === id ? view.activeRun : null;
  const end = run === null ? view.lastEnd : null;
  const status = run?.status ?? statusOf(view.conversation.generationStatus);
  const { model = null, attempt = null, startedAt = null, retry = null, pendingApprovals = [] } = run ?? {};
  return {
    id,
    status,
    contentParts: said(view, id),
    pendingApproval: pendingApprovals[0] ?? null,
    model,
    attempt,
    startedAt,
    retry,
    endReason: end?.reason ?? null,
    errorMessage: end?.errorMessage ?? null,
  };
}

/** Everything but its question. */
function said(view: View, generationId: string): readonly Part[] {
  const own = view.messages.filter(
    (message) => message.generationId === generationId && message.role !== "user",
  );
  return own.flatMap((message) => partsOf(view, message));
}

/** The same in a generation's words. */
function statusOf(status: ConversationStatus): GenerationStatus {
  if (status === "complete") return "completed";
  // There is no generation in a conversation that is idle.
  return status === "generating" ? "running" : (status as GenerationStatus);
}
