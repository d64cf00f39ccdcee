/** The current generation of a conversation as a hook, for components that need no transcript. */

import { useMemo } from "react";
import type { GenerationState } from "../generation-state.js";
import type { PendingApproval, RetryMode } from "../generation.js";
import type { Connection } from "../machine.js";
import type { Content, SendOptions } from "../pending.js";
import type { OutlastError } from "../problem.js";
import { useConversation } from "./use-conversation.js";

export interface UseGeneration {
  /** The current generation, or the last one. */
  readonly generation: GenerationState | null;
  readonly isGenerating: boolean;
  /** Whether it is paused or interrupted, and waits for a person. */
  readonly isPaused: boolean;
  readonly pendingApproval: PendingApproval | null;
  readonly connection: Connection;
  readonly error: OutlastError | null;
  readonly startGeneration: (content: Content, options?: SendOptions) => Promise<void>;
  readonly cancelGeneration: () => Promise<void>;
  /** Decides about the `pendingApproval` of this render, never about a later one. */
  readonly submitApproval: (decision: "approve" | "deny") => Promise<void>;
  readonly resumeGeneration: () => Promise<void>;
  readonly dismissGeneration: () => Promise<void>;
  readonly retryGeneration: (mode?: RetryMode) => Promise<void>;
}

/** Follows the current generation of a conversation, even one that began before the page was loaded. */
export function useGeneration(conversationId: string | null): UseGeneration {
  const { generation, isGenerating, connection, error, conversation } = useConversation(conversationId);
  const shown = generation?.pendingApproval ?? null;
  const actions = useMemo(
    () => ({
      startGeneration: async (content: Content, options?: SendOptions) =>
        void (await conversation.send(content, options)),
      cancelGeneration: async () => void (await conversation.cancel()),
      submitApproval: async (decision: "approve" | "deny") =>
        void (await conversation.submitApproval(shown, { decision })),
      resumeGeneration: async () => void (await conversation.resume()),
      dismissGeneration: async () => void (await conversation.dismiss()),
      retryGeneration: async (mode?: RetryMode) => void (await conversation.retry(mode)),
    }),
    [conversation, shown],
  );
  return {
    generation,
    isGenerating,
    isPaused: generation?.status === "paused" || generation?.status === "interrupted",
    pendingApproval: shown,
    connection,
    error,
    ...actions,
  };
}
