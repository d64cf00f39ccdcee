/** A one-line summary of an event. */

import type { OutlastEvent } from "@outlast/client";
import { revealBidi } from "../markdown/invisible";
import { duration } from "../shell/duration";
import { pretty } from "../shell/pretty";

const LONGEST = 90;

export function summaryOf(event: OutlastEvent): string {
  return revealBidi(words(event).replace(/\s+/g, " ").slice(0, LONGEST));
}

function words(event: OutlastEvent): string {
  switch (event.type) {
    case "message.added":
      return event.payload.message.content;
    case "generation.queued":
      return `model ${event.payload.model}`;
    case "chat.started":
      return `attempt ${event.payload.attempt}, model ${event.payload.model}`;
    case "chat.delta":
    case "thinking.delta":
      return event.payload.text;
    case "tool.start":
      return event.payload.toolName;
    case "tool.output":
      return event.payload.text;
    case "tool.end":
      return `${event.payload.outcome ?? (event.payload.isError ? "failed" : "done")}: ${pretty(event.payload.result)}`;
    case "approval.requested":
      return event.payload.toolName;
    case "approval.resolved":
      return `${event.payload.decision} by ${event.payload.by}${event.payload.reason ? `: ${event.payload.reason}` : ""}`;
    case "delegation.changed":
      return `${event.payload.state.status}: ${event.payload.state.plan.join("; ")}`;
    case "sandbox.changed":
      return `${event.payload.state}: ${event.payload.reason}`;
    case "file.changed":
      return `${event.payload.path} ${event.payload.change} by ${event.payload.by}`;
    case "checkpoint.taken":
      return `${event.payload.files} files, ${event.payload.bytes} bytes${event.payload.leftOut ? `; left out: ${event.payload.leftOut}` : ""}`;
    case "checkpoint.failed":
      return event.payload.reason;
    case "round.ended":
      return `round ${event.payload.round}`;
    case "usage":
      return `${event.payload.inputTokens} input tokens, ${event.payload.outputTokens} output tokens`;
    case "attempt.retracted":
      return `attempt ${event.payload.attempt}: ${event.payload.reason}`;
    case "retry.scheduled":
      return `attempt ${event.payload.attempt} in ${duration(event.payload.delayMs)}: ${event.payload.reason}`;
    case "chat.interrupted":
      return event.payload.reason;
    case "chat.resumed":
      return `by ${event.payload.by}`;
    case "chat.done":
      return event.payload.finishReason;
    case "chat.error":
      return event.payload.errorMessage;
    case "chat.cancelled":
      return event.payload.reason;
    default:
      return "";
  }
}
