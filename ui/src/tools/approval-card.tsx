/** One question to a person: exactly what would run, and the ways to decide. */

import { OutlastError } from "@outlast/client";
import type { PendingApproval } from "@outlast/client";
import { useMemo, useState } from "react";
import type { MouseEvent, ReactNode } from "react";
import { revealAll } from "../markdown/invisible";
import { Revealed } from "../markdown/revealed";
import { Icon } from "../shell/icon";
import { Link } from "../shell/link";
import { pretty } from "../shell/pretty";
import { ApprovalReach } from "./approval-reach";
import { decisionOf } from "./choice";
import type { Choice, Decision } from "./choice";
import { ToolArguments } from "./tool-arguments";
import { subjectOf } from "./tool-call";

export interface ApprovalCardProps {
  readonly approval: PendingApproval;
  /** The sub-agent that asks, or null. */
  readonly childId: string | null;
  readonly hasChanged: boolean;
  readonly isSettled: boolean;
  readonly onDecide: (decision: Decision) => Promise<unknown>;
}

export function ApprovalCard(props: ApprovalCardProps): ReactNode {
  const { approval, childId, hasChanged, isSettled, onDecide } = props;
  const { toolName, toolInput } = approval;
  const subject = subjectOf(toolName, toolInput);
  const [isDecided, setDecided] = useState(false);
  const [choice, choose] = useState<Choice>({ reach: "once", pattern: subject?.text ?? "", reason: "" });
  const decide = (event: MouseEvent, decision: Decision["decision"]): void => {
    if (event.detail > 1) return;
    setDecided(true);
    onDecide(decisionOf(decision, choice, subject)).catch((error: unknown) => {
      // A question that has changed can no longer be decided. The new one gets its own card.
      setDecided(error instanceof OutlastError && error.code === "approval_changed");
    });
  };
  return (
    <div className="turn-card is-wait approval" role="group" aria-label={`Decision needed: ${toolName}`}>
      <p className="turn-title">
        <Icon name="alert" />
        <span>
          Allow{" "}
          <bdi className="tool-name">
            <Revealed text={toolName} />
          </bdi>
          ?
        </span>
      </p>
      <p className="turn-text">
        {childId !== null && (
          <>
            Asked by <Link to={{ type: "conversation", id: childId }}>a sub-agent</Link>.{" "}
          </>
        )}
        Nothing runs until you decide. The question waits as long as you need.
      </p>
      {hasChanged && (
        <p className="approval-warning" role="alert">
          This request has changed since you first saw it. Read it again before you decide.
        </p>
      )}
      {childId !== null && toolInput === null ? (
        <p className="approval-warning">
          Its arguments are too long to be shown here. Open the sub-agent to read them and decide.
        </p>
      ) : (
        <>
          <InvisibleWarning text={`${toolName} ${pretty(toolInput)}`} />
          <ToolArguments name={toolName} input={toolInput} isQuestion />
          <ApprovalReach name={toolName} subject={subject} choice={choice} onChange={choose} />
          <Buttons isDisabled={isDecided || !isSettled} onDecide={decide} />
        </>
      )}
    </div>
  );
}

interface ButtonsProps {
  readonly isDisabled: boolean;
  readonly onDecide: (event: MouseEvent, decision: Decision["decision"]) => void;
}

function Buttons({ isDisabled, onDecide }: ButtonsProps): ReactNode {
  return (
    <div className="turn-buttons">
      <button
        type="button"
        className="button button-primary"
        disabled={isDisabled}
        onClick={(event) => onDecide(event, "approve")}
      >
        Approve
      </button>
      <button
        type="button"
        className="button"
        disabled={isDisabled}
        onClick={(event) => onDecide(event, "deny")}
      >
        Deny
      </button>
    </div>
  );
}

function InvisibleWarning({ text }: { readonly text: string }): ReactNode {
  const isNeeded = useMemo(() => revealAll(text).some(({ isMark }) => isMark), [text]);
  if (!isNeeded) return null;
  return <p className="approval-warning">This request contains invisible characters, shown here as ⟨U+…⟩.</p>;
}
