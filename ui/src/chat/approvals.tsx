/** Tool calls that wait for a decision: all of them, each with its input. */

import { OutlastError } from "@outlast/client";
import type { PendingApproval } from "@outlast/client";
import type { UseConversation } from "@outlast/client/react";
import { useEffect, useMemo, useState } from "react";
import type { MouseEvent, ReactNode } from "react";
import { revealAll } from "../markdown/invisible";
import { pretty } from "../shell/pretty";
import { hasChanged } from "./first-shown";
import { ToolUse } from "./tool-card";

/** A card that just moved here takes no click: the second click of a double-click was meant for another card. */
const SETTLE_MS = 400;

/** A key that is different for a different question under the same id. */
export function questionKey({ toolUseId, hash = "" }: PendingApproval): string {
  return `${toolUseId} ${hash}`;
}

export function Approvals({ chat }: { readonly chat: UseConversation }): ReactNode {
  const run = chat.view?.activeRun;
  const asked = run?.pendingApprovals ?? [];
  const isSettled = useSettled(asked.map(questionKey).join(" "));
  return asked.map((approval) => (
    <ApprovalCard
      key={questionKey(approval)}
      approval={approval}
      hasChanged={hasChanged(chat.conversation, run?.generationId ?? "", approval)}
      isSettled={isSettled}
      onDecide={(decision) => chat.submitApproval(approval, { decision })}
    />
  ));
}

interface ApprovalCardProps {
  readonly approval: PendingApproval;
  readonly hasChanged: boolean;
  readonly isSettled: boolean;
  readonly onDecide: (decision: "approve" | "deny") => Promise<unknown>;
}

function ApprovalCard({ approval, hasChanged, isSettled, onDecide }: ApprovalCardProps): ReactNode {
  const { toolName, toolInput } = approval;
  const [isDecided, setDecided] = useState(false);
  const decide = (event: MouseEvent, decision: "approve" | "deny"): void => {
    if (event.detail > 1) return;
    setDecided(true);
    onDecide(decision).catch((error: unknown) => {
      // A question that has changed can no longer be decided. The new one gets its own card.
      setDecided(error instanceof OutlastError && error.code === "approval_changed");
    });
  };
  const isDisabled = isDecided || !isSettled;
  return (
    <div className="turn-card is-wait" role="group" aria-label={`Decision needed: ${toolName}`}>
      <p>The assistant wants to use a tool. Nothing runs until you decide.</p>
      {hasChanged && (
        <p className="approval-warning" role="alert">
          This request has changed since you first saw it. Read it again before you decide.
        </p>
      )}
      <InvisibleWarning text={`${toolName} ${pretty(toolInput)}`} />
      <ToolUse name={toolName} input={toolInput} isQuestion>
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

function InvisibleWarning({ text }: { readonly text: string }): ReactNode {
  const isNeeded = useMemo(() => revealAll(text).some(({ isMark }) => isMark), [text]);
  if (!isNeeded) return null;
  return <p className="approval-warning">This request contains invisible characters, shown here as ⟨U+…⟩.</p>;
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
