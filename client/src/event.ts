/** The events of a conversation. PROTOCOL.md explains each of them. */

import type { LogEvent, StreamEvent as OutlastEvent } from "./generated/api.js";
import { readObject } from "./json.js";

export type { SnapshotEvent, StreamEvent as OutlastEvent } from "./generated/api.js";

type EventOf<Type extends LogEvent["type"]> = Extract<LogEvent, { readonly type: Type }>;

/** A field that is absent is unchanged; null clears it. */
export type ConversationUpdate = EventOf<"conversation.updated">["payload"];

/** The last event of a generation: exactly one of these. */
export type EndEvent = EventOf<"chat.done" | "chat.error" | "chat.cancelled">;

/** What becomes of a tool call, of the question about it, and of the sandbox it runs in. */
export type ToolEvent = EventOf<
  | "tool.began"
  | "tool.output"
  | "tool.end"
  | "tool.stopped"
  | "approval.requested"
  | "approval.resolved"
  | "delegation.changed"
  | "parent.told"
  | "sandbox.changed"
  | "file.changed"
  | "checkpoint.taken"
  | "checkpoint.failed"
  | "round.ended"
>;

/** What the user is told while nobody watches. */
export type NotificationEvent = EventOf<"notification.owed" | "notification.made">;

/** The events that change a transcript or a run. */
export type ChatEvent = Exclude<LogEvent, ToolEvent | NotificationEvent>;

export function isEnd(event: OutlastEvent): event is EndEvent {
  return /^chat\.(done|error|cancelled)$/.test(event.type);
}

/**
 * Parses an event; null if it is none. Only the envelope is checked: the server is trusted for the rest, and an
 * unknown type must pass, because its position counts.
 */
export function parseEvent(json: string): OutlastEvent | null {
  const event = readObject(json);
  const fits =
    Number.isSafeInteger(event?.["seq"]) && typeof event?.["type"] === "string" && event["payload"];
  return fits ? (event as unknown as OutlastEvent) : null;
}
