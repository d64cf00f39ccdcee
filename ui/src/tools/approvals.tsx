/** Tool calls that wait for a decision: all of them, each with its arguments. */

import type { ActiveRun, PendingApproval } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useState } from "react";
import type { ReactNode } from "react";
import { ApprovalCard } from "./approval-card";
import { hasChanged } from "./first-shown";

/** A card that just moved here takes no click: the second click of a double-click was meant for another card. */
const SETTLE_MS = 400;

/** A key that is different for a different question under the same id. */
export function questionKey({ toolUseId, hash = "" }: PendingApproval): string {
  return `${toolUseId} ${hash}`;
}

interface Asked {
  readonly approval: PendingApproval;
  /** The sub-agent that asks, or null. */
  readonly childId: string | null;
}

/** What the run asks a person, and what its sub-agents ask. A decision about any of them is sent to the run. */
export function askedBy(run: ActiveRun | null | undefined): readonly Asked[] {
  const own = run?.pendingApprovals ?? [];
  const questions = run?.delegations?.flatMap(({ state }) => state.approvals ?? []) ?? [];
  return [
    ...own.map((approval) => ({ approval, childId: null })),
    ...questions.map(({ id, toolName, toolInput, hash, conversationId }) => ({
      approval: { toolUseId: id, toolName, toolInput, hash },
      childId: conversationId,
    })),
  ];
}

export function Approvals({ chat }: { readonly chat: UseConversation }): ReactNode {
  const run = chat.view?.activeRun;
  const asked = askedBy(run);
  const isSettled = useSettled(asked.map(({ approval }) => questionKey(approval)).join(" "));
  return asked.map(({ approval, childId }) => (
    <ApprovalCard
      key={questionKey(approval)}
      approval={approval}
      childId={childId}
      hasChanged={hasChanged(chat.conversation, run?.generationId ?? "", approval)}
      isSettled={isSettled}
      onDecide={(decision) => chat.submitApproval(approval, decision)}
    />
  ));
}

/** Whether nothing has moved for a moment. */
function useSettled(what: string): boolean {
  const [settled, setSettled] = useState<string | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(what), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [what]);
  return settled === what;
}
