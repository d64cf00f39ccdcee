/** Messages that were sent but are not in the view yet. */

import type { StartGeneration } from "./api.js";
import type { Content } from "./generated/api.js";
import type { OutlastError } from "./problem.js";
import type { View } from "./view.js";

/** The content of a message: text, or text parts. */
export type { Content } from "./generated/api.js";

/** `requestId` is the idempotency key of a request that an earlier page began. Generated if left out. */
export type SendOptions = Omit<StartGeneration, "content" | "conversationId">;

export interface PendingMessage {
  /** Identifies the request. Use it as the key of the rendered message. */
  readonly requestId: string;
  readonly content: Content;
  readonly options: SendOptions;
  /** `sending`: no response yet. `sent`: saved by the server, not yet in the view. `failed`: see `error`. */
  readonly status: "sending" | "sent" | "failed";
  readonly error: OutlastError | null;
  /** The id of the saved message, once it is known. */
  readonly messageId: string | null;
  /** The generation that answers it, once it is known. */
  readonly generationId: string | null;
  readonly createdAt: string;
  /** The position of the view when it was sent. */
  readonly sentAfter: number;
}

/** The plain text of a message's content. */
export function contentText(content: Content): string {
  return typeof content === "string" ? content : content.map((part) => part.text).join("");
}

/** Whether the view contains a message, by its ids. */
export function isIn(view: View, { requestId, messageId }: PendingMessage): boolean {
  return (
    [view.activeRun, ...view.queue].some((run) => run?.requestId === requestId) ||
    (messageId !== null && view.messages.some((message) => message.id === messageId))
  );
}

/**
 * Whether the view seems to contain it. A snapshot does not say which request a finished message belongs to. So
 * while there is no response to ours, a later message with the same text is taken for it, rather than showing a
 * duplicate.
 */
export function looksArrived(view: View, { status, content, sentAfter }: PendingMessage): boolean {
  const text = contentText(content);
  return (
    status === "sending" &&
    view.messages.some(({ role, seq, content }) => role === "user" && seq > sentAfter && content === text)
  );
}
