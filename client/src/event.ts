/** The events of a conversation. PROTOCOL.md explains each of them. */

import { readObject } from "./json.js";
import type { CancelReason, RetryOf } from "./generation.js";
import type { Message } from "./message.js";
import type { View } from "./view.js";

interface Envelope<Type extends string, Payload> {
  /** The position in the conversation's log: 1, 2, 3, … */
  readonly seq: number;
  readonly ts: string;
  readonly generationId: string | null;
  /** The request that started that generation. */
  readonly requestId: string | null;
  readonly type: Type;
  readonly payload: Payload;
}

interface Delta {
  readonly messageId: string;
  readonly text: string;
  readonly chunks?: number;
}

interface ToolCall {
  readonly toolUseId: string;
  readonly toolName: string;
  readonly toolInput: unknown;
}

/** A field that is absent is unchanged; null clears it. */
export interface ConversationUpdate {
  readonly title?: string | null;
  readonly metadata?: unknown;
}

/** The events that change a transcript or a run. */
export type ChatEvent =
  | Envelope<"conversation.updated", ConversationUpdate>
  | Envelope<"message.added", { readonly message: Message }>
  | Envelope<
      "generation.queued",
      {
        readonly messageId: string;
        readonly model: string;
        readonly digest: string;
        readonly system?: string;
        readonly metadata?: unknown;
        readonly retryOf?: RetryOf;
        /** Given to the model instead of the transcript. */
        readonly prompt?: unknown;
        /** The id that the answer's first message will have. */
        readonly answerId?: string;
        /** Set if a worker produces the answer. */
        readonly producer?: "external";
      }
    >
  | Envelope<"chat.started", { readonly model: string; readonly attempt: number }>
  | Envelope<"assistant.segment.started", { readonly messageId: string }>
  | Envelope<"assistant.segment.ended", { readonly messageId: string }>
  /** The model calls a tool, which is a message of its own. */
  | Envelope<"tool.start", ToolCall & { readonly messageId: string }>
  | Envelope<"chat.delta", Delta>
  | Envelope<"thinking.delta", Delta>
  | Envelope<"usage", { readonly inputTokens: number; readonly outputTokens: number }>
  | Envelope<
      "attempt.retracted",
      { readonly attempt: number; readonly messageIds: readonly string[]; readonly reason: string }
    >
  | Envelope<
      "retry.scheduled",
      { readonly attempt: number; readonly delayMs: number; readonly reason: string }
    >
  | Envelope<"chat.interrupted", { readonly reason: string; readonly round: number }>
  | Envelope<"chat.resumed", { readonly by: string }>
  | EndEvent;

/** The last event of a generation: exactly one of these. */
export type EndEvent =
  | Envelope<"chat.done", { readonly finishReason: string }>
  | Envelope<"chat.error", { readonly errorMessage: string; readonly code: string }>
  | Envelope<"chat.cancelled", { readonly reason: CancelReason }>;

/** Tools, approvals and sandboxes. */
export type ToolEvent =
  | Envelope<
      "tool.output",
      { readonly toolUseId: string; readonly stream: "stdout" | "stderr"; readonly text: string }
    >
  | Envelope<
      "tool.end",
      {
        readonly messageId: string;
        readonly toolUseId: string;
        readonly result: unknown;
        readonly isError: boolean;
      }
    >
  | Envelope<"approval.requested", ToolCall & { readonly hash?: string }>
  | Envelope<
      "approval.resolved",
      { readonly toolUseId: string; readonly decision: "approve" | "deny"; readonly by: string }
    >
  | Envelope<
      "sandbox.changed",
      {
        readonly sandboxId: string;
        readonly state: "created" | "resumed" | "paused" | "killed" | "lost" | "restored";
        readonly reason: string;
      }
    >;

/** Not an event of the log: it stands for all events up to its `seq`. */
export type SnapshotEvent = Envelope<"snapshot", View>;

export type OutlastEvent = ChatEvent | ToolEvent | SnapshotEvent;

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
