/** A one-line summary of an event. */

import type { OutlastEvent } from "@outlast/client";
import { revealBidi } from "../markdown/invisible";
import { duration } from "../shell/duration";

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
