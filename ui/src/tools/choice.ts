/** What a person chose in an approval card, and the decision that it becomes. */

import type { Approval } from "@outlast/client";
import type { Subject } from "./tool-call";

/** Which calls a decision is about: this one, every call of the tool, or those whose arguments match. */
export type Reach = "once" | "tool" | "pattern";

export interface Choice {
  readonly reach: Reach;
  readonly pattern: string;
  readonly reason: string;
}

export type Decision = Omit<Approval, "hash">;

export function decisionOf(
  decision: Approval["decision"],
  choice: Choice,
  subject: Subject | null,
): Decision {
  const reason = choice.reason.trim();
  const isLimited = choice.reach === "pattern" && subject !== null;
  return {
    decision,
    ...(reason !== "" && { reason }),
    ...(choice.reach !== "once" && { always: true }),
    ...(isLimited && { pattern: { [subject.argument]: choice.pattern } }),
  };
}
