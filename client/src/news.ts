/** What one part of the page, or one tab, lets the others know. */

import type { ConversationDocument } from "./generation.js";

export type News =
  /** Something was sent or decided in this conversation; null if it is not known in which. */
  | { readonly type: "changed"; readonly conversationId: string | null }
  /** This is how a conversation stands now. */
  | { readonly type: "seen"; readonly conversation: ConversationDocument }
  | { readonly type: "deleted"; readonly conversationId: string };

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

  /** Calls back until the answer is called. */
  listen(listener: (news: News) => void): () => void {
    this.#listeners.add(listener);
    this.#open();
    return () => this.#listeners.delete(listener);
  }

  tell(news: News): void {
    this.#deliver(news);
    this.#open()?.postMessage(news);
  }

  /** Opened when it is first needed, so that making a client on a server has no effect. */
  #open(): ChannelLike | null {
    const channel = (this.#channel ??= this.#makeChannel());
    if (channel !== null) channel.onmessage = ({ data }) => this.#deliver(data as News);
    return channel;
  }

  #deliver(news: News): void {
    for (const listener of [...this.#listeners]) listener(news);
  }
}

/** Tabs of one origin that talk to the same server. Only pages have tabs. */
export function tabChannel(baseUrl: string): () => ChannelLike | null {
  return () => {
    return globalThis.document && globalThis.BroadcastChannel
      ? new BroadcastChannel(`outlast:${baseUrl}`)
      : null;
  };
}
