/** Which calls a decision is about, and the reason for it. */

import { useId } from "react";
import type { ReactNode } from "react";
import type { Choice, Reach } from "./choice";
import type { Subject } from "./tool-call";

export interface ApprovalReachProps {
  readonly name: string;
  readonly subject: Subject | null;
  readonly choice: Choice;
  readonly onChange: (choice: Choice) => void;
}

export function ApprovalReach({ name, subject, choice, onChange }: ApprovalReachProps): ReactNode {
  const hint = useId();
  return (
    <div className="approval-choice">
      <label>
        <span>Applies to</span>
        <select
          value={choice.reach}
          onChange={(event) => onChange({ ...choice, reach: event.target.value as Reach })}
        >
          <option value="once">this call only</option>
          {subject !== null && <option value="pattern">calls like this, always</option>}
          <option value="tool">every {name} call, always</option>
        </select>
      </label>
      {choice.reach === "pattern" && subject !== null && (
        <label>
          <span>Pattern for {subject.argument}</span>
          <input
            type="text"
            className="is-mono"
            value={choice.pattern}
            spellCheck={false}
            autoComplete="off"
            aria-describedby={hint}
            onChange={(event) => onChange({ ...choice, pattern: event.target.value })}
          />
        </label>
      )}
      <label>
        <span>Reason</span>
        <input
          type="text"
          value={choice.reason}
          maxLength={500}
          autoComplete="off"
          placeholder="Optional, for the assistant"
          onChange={(event) => onChange({ ...choice, reason: event.target.value })}
        />
      </label>
      {choice.reach !== "once" && (
        <p className="approval-hint" id={hint}>
          {choice.reach === "pattern"
            ? "In this conversation. * stands for any text, ? for one character."
            : `Every later ${name} call in this conversation is decided the same way, without asking you.`}
        </p>
      )}
    </div>
  );
}
