/** Messages that were sent and are not in the view yet. */

import type { WhenBusy } from "./api.js";
import type { OutlastError } from "./problem.js";
import type { View } from "./view.js";

/** What a person says: text, or several pieces of it. */
export type Content = string | readonly { readonly type: "text"; readonly text: string }[];

export interface SendOptions {
  readonly model?: string | undefined;
  /** What becomes of it if another message is being answered. */
  readonly whenBusy?: WhenBusy | undefined;
  readonly system?: string | undefined;
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  /** Names the request, if it was begun before: by a page that was left before it was answered. */
  readonly requestId?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface PendingMessage {
  /** Names the request. Show the message under this key. */
  readonly requestId: string;
  readonly content: Content;
  readonly options: SendOptions;
  /** `sending`: not answered yet. `sent`: saved by the server, not yet in the view. `failed`: see `error`. */
  readonly status: "sending" | "sent" | "failed";
  readonly error: OutlastError | null;
  /** The durable message, once the server has named it. */
  readonly messageId: string | null;
  /** What answers it, known from the same moment on. */
  readonly generationId: string | null;
  readonly createdAt: string;
  /** Where the view stood when it was sent. */
  readonly sentAfter: number;
}

/** The plain text of what a person says. */
export function contentText(content: Content): string {
  return typeof content === "string" ? content : content.map((part) => part.text).join("");
}

/** Whether a message is certainly in the view, under an id of its own, and so must not be shown beside it. */
export function isIn(view: View, { requestId, messageId }: PendingMessage): boolean {
  return (
    [view.activeRun, ...view.queue].some((run) => run?.requestId === requestId) ||
    (messageId !== null && view.messages.some((message) => message.id === messageId))
  );
}

/**
 * Whether it seems to be. A view that came as a snapshot does not say which request a finished message
 * belongs to; while ours is not answered, one that arrived since with the same words is taken for it
 * rather than shown twice.
 */
export function looksArrived(view: View, { status, content, sentAfter }: PendingMessage): boolean {
  const text = contentText(content);
  return (
    status === "sending" &&
    view.messages.some(({ role, seq, content }) => role === "user" && seq > sentAfter && content === text)
  );
}
