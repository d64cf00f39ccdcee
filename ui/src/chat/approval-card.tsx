/** A tool call that waits for a decision. Only servers that run tools ask for one. */

import type { PendingApproval } from "@outlast/client";
import type { ReactNode } from "react";
import { ToolUse } from "./tool-card";

export interface ApprovalCardProps {
  readonly approval: PendingApproval;
  readonly onDecide: (decision: "approve" | "deny") => void;
}

export function ApprovalCard({ approval, onDecide }: ApprovalCardProps): ReactNode {
  return (
    <div className="turn-card" role="group" aria-label="A decision is needed">
      <p>The assistant wants to use a tool. Nothing happens before you decide.</p>
      <ToolUse name={approval.toolName} input={approval.toolInput}>
        <div className="turn-buttons">
          <button type="button" className="button button-primary" onClick={() => onDecide("approve")}>
            Approve
          </button>
          <button type="button" className="button" onClick={() => onDecide("deny")}>
            Deny
          </button>
        </div>
      </ToolUse>
    </div>
  );
}
