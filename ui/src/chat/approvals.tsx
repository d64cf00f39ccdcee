/** Tool calls that wait for a decision: all of them, each with what it would do. */

import type { PendingApproval } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useState } from "react";
import type { MouseEvent, ReactNode } from "react";
import { ToolUse } from "./tool-card";

/** A card that has just come to its place takes no click: the second of a double-click is for the one before it. */
const SETTLE_MS = 400;

export function Approvals({ chat }: { readonly chat: UseConversation }): ReactNode {
  const asked = chat.view?.activeRun?.pendingApprovals ?? [];
  const isSettled = useSettled(asked.map(({ toolUseId }) => toolUseId).join(" "));
  return asked.map((approval) => (
    <ApprovalCard
      key={approval.toolUseId}
      approval={approval}
      isSettled={isSettled}
      onDecide={(decision) => chat.submitApproval(approval.toolUseId, { decision })}
    />
  ));
}

interface ApprovalCardProps {
  readonly approval: PendingApproval;
  readonly isSettled: boolean;
  readonly onDecide: (decision: "approve" | "deny") => Promise<unknown>;
}

function ApprovalCard({ approval, isSettled, onDecide }: ApprovalCardProps): ReactNode {
  const [isDecided, setDecided] = useState(false);
  const decide = (event: MouseEvent, decision: "approve" | "deny"): void => {
    if (event.detail > 1) return;
    setDecided(true);
    // The conversation says what went wrong; here it may be tried again.
    onDecide(decision).catch(() => setDecided(false));
  };
  const isDisabled = isDecided || !isSettled;
  return (
    <div className="turn-card is-wait" role="group" aria-label={`A decision is needed: ${approval.toolName}`}>
      <p>The assistant wants to use a tool. Nothing happens before you decide.</p>
      <ToolUse name={approval.toolName} input={approval.toolInput} isOpen>
        <div className="turn-buttons">
          <button
            type="button"
            className="button button-primary"
            disabled={isDisabled}
            onClick={(event) => decide(event, "approve")}
          >
            Approve
          </button>
          <button
            type="button"
            className="button"
            disabled={isDisabled}
            onClick={(event) => decide(event, "deny")}
          >
            Deny
          </button>
        </div>
      </ToolUse>
    </div>
  );
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
