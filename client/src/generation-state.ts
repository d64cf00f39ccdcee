/** The current generation of a view, in a form that is easy to show. */

import type { ConversationStatus, GenerationStatus, PendingApproval } from "./generation.js";
import type { Part } from "./message.js";
import { partsOf } from "./view.js";
import type { ActiveRun, ScheduledRetry, View } from "./view.js";

/** The current generation, or the last one. */
export interface GenerationState {
  readonly id: string;
  readonly status: GenerationStatus;
  /** The content so far. */
  readonly contentParts: readonly Part[];
  readonly pendingApproval: PendingApproval | null;
  /** Known while it runs. */
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
    pendingApproval: pendingApprovals[0] ?? questionOfChild(run),
    model,
    attempt,
    startedAt,
    retry,
    endReason: end?.reason ?? null,
    errorMessage: end?.errorMessage ?? null,
  };
}

/** What a sub-agent asks, as if the run asked it: the decision is sent to the run. */
function questionOfChild(run: ActiveRun | null): PendingApproval | null {
  const questions = run?.delegations?.flatMap(({ state }) => state.approvals ?? []) ?? [];
  // One whose arguments are too long is decided in the sub-agent's own conversation.
  const question = questions.find(({ toolInput }) => toolInput !== null);
  if (question === undefined) return null;
  const { id: toolUseId, toolName, toolInput, hash } = question;
  return { toolUseId, toolName, toolInput, hash };
}

/** Everything but the user's message. */
function said(view: View, generationId: string): readonly Part[] {
  const own = view.messages.filter(
    (message) => message.generationId === generationId && message.role !== "user",
  );
  return own.flatMap((message) => partsOf(view, message));
}

/** Translates a conversation's status into a generation's. */
function statusOf(status: ConversationStatus): GenerationStatus {
  if (status === "complete") return "completed";
  // An idle conversation has no generation.
  return status === "generating" ? "running" : (status as GenerationStatus);
}
