/** Sends messages, and holds each of them until it is in the view. */

import type { StartedGeneration } from "./api.js";
import type { OutlastEvent } from "./event.js";
import { isIn, looksArrived } from "./pending.js";
import type { Content, PendingMessage, SendOptions } from "./pending.js";
import { nothingThere, OutlastError } from "./problem.js";
import { randomId } from "./random-id.js";
import type { View } from "./view.js";

export class Outbox {
  #messages: readonly PendingMessage[] = [];
  /** Our requests that were in the log before the server responded to them. */
  readonly #arrived = new Map<string, StartedGeneration>();
  /** The newest request in progress. */
  newest: Promise<StartedGeneration> | null = null;

  /** The messages that are not in the view. */
  beside(view: View | null): readonly PendingMessage[] {
    if (view === null) return this.#messages;
    return this.#messages.filter((message) => !isIn(view, message) && !looksArrived(view, message));
  }

  add(content: Content, options: SendOptions, sentAfter: number): PendingMessage {
    const createdAt = new Date().toISOString();
    const { requestId = randomId() } = options;
    const message = {
      requestId,
      content,
      options,
      createdAt,
      sentAfter,
      messageId: null,
      generationId: null,
    };
    return this.#put({ ...message, status: "sending", error: null });
  }

  /** Prepares a failed message to be sent again under the same request id. */
  again(requestId: string, options: SendOptions): PendingMessage {
    const failed = this.#messages.find(
      (message) => message.requestId === requestId && message.status === "failed",
    );
    if (failed === undefined) throw nothingThere();
    return this.#put({
      ...failed,
      options: { ...failed.options, ...options },
      status: "sending",
      error: null,
    });
  }

  discard(requestId: string): void {
    this.#messages = this.#messages.filter(
      (message) => message.requestId !== requestId || message.status !== "failed",
    );
  }

  /** Sends one message after the other, so that they keep their order and create only one conversation. */
  async deliver(
    { requestId }: PendingMessage,
    start: () => Promise<StartedGeneration>,
  ): Promise<StartedGeneration> {
    const sending = this.newest === null ? start() : this.newest.then(start, start);
    this.newest = sending;
    try {
      const started = await sending;
      const { messageId, generationId } = started;
      this.#change(requestId, { status: "sent", messageId, generationId });
      return started;
    } catch (error) {
      const arrived = this.#arrived.get(requestId);
      // Only the response was lost.
      if (arrived !== undefined) return arrived;
      this.#change(requestId, { status: "failed", error: error instanceof OutlastError ? error : null });
      throw error;
    } finally {
      this.#arrived.delete(requestId);
      if (this.newest === sending) this.newest = null;
    }
  }

  /** Drops the messages that are in the log or in the view. */
  settle(events: readonly OutlastEvent[], view: View): void {
    if (this.#messages.length === 0) return;
    for (const event of events) this.#recognise(event);
    this.#messages = this.#messages.filter((message) => !isIn(view, message));
  }

  /** A message of ours that is in the log is in the view from now on. */
  #recognise({ type, requestId, generationId, payload }: OutlastEvent): void {
    const ours = this.#messages.find((message) => message.requestId === requestId);
    if (type !== "message.added" || ours === undefined || generationId === null) return;
    const { id: messageId, conversationId } = payload.message;
    if (ours.status === "sending") {
      this.#arrived.set(ours.requestId, { generationId, conversationId, messageId, status: "queued" });
    }
    this.#messages = this.#messages.filter((message) => message !== ours);
  }

  #put(message: PendingMessage): PendingMessage {
    this.discard(message.requestId);
    this.#messages = [...this.#messages, message];
    return message;
  }

  #change(requestId: string, change: Partial<PendingMessage>): void {
    this.#messages = this.#messages.map((message) =>
      message.requestId === requestId ? { ...message, ...change } : message,
    );
  }
}
