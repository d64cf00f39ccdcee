/** Messages between the parts of a page, and between tabs. */

import type { ConversationDocument } from "./generation.js";

export type News =
  /** Something was sent or decided in this conversation; null if it is unknown in which. */
  | { readonly type: "changed"; readonly conversationId: string | null }
  /** The current state of a conversation. */
  | { readonly type: "seen"; readonly conversation: ConversationDocument }
  | { readonly type: "deleted"; readonly conversationId: string }
  /** The list of notifications may have changed. */
  | { readonly type: "notified" };

/** What this needs of a `BroadcastChannel`. */
export interface ChannelLike {
  postMessage(message: unknown): void;
  onmessage: ((event: MessageEvent) => unknown) | null;
}

export class NewsDesk {
  readonly #listeners = new Set<(news: News) => void>();
  readonly #makeChannel: () => ChannelLike | null;
  #channel: ChannelLike | null = null;

  constructor(makeChannel: () => ChannelLike | null) {
    this.#makeChannel = makeChannel;
  }

  /** Calls back until the returned function is called. */
  listen(listener: (news: News) => void): () => void {
    this.#listeners.add(listener);
    this.#open();
    return () => this.#listeners.delete(listener);
  }

  tell(news: News): void {
    this.#deliver(news);
    this.#open()?.postMessage(news);
  }

  /** Opened on first use, so that creating a client has no side effects. */
  #open(): ChannelLike | null {
    const channel = (this.#channel ??= this.#makeChannel());
    if (channel !== null) channel.onmessage = ({ data }) => this.#deliver(data as News);
    return channel;
  }

  #deliver(news: News): void {
    for (const listener of [...this.#listeners]) listener(news);
  }
}

/** Connects tabs of one origin that use the same server. */
export function tabChannel(baseUrl: string): () => ChannelLike | null {
  return () => {
    return globalThis.document && globalThis.BroadcastChannel
      ? new BroadcastChannel(`outlast:${baseUrl}`)
      : null;
  };
}
