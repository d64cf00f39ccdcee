/** All conversations, to watch: what they are called and what is going on in them. */

import { sharedBy } from "./client.js";
import type { OutlastClient } from "./client.js";
import { isUnderWay } from "./generation.js";
import type { ConversationDocument } from "./generation.js";
import type { News } from "./news.js";
import type { Shared } from "./options.js";
import { OutlastError } from "./problem.js";
import { Store } from "./store.js";

/** While something is under way the list is read again this often; */
export const POLL_MS = 3_000;
/** less and less often, down to this, while nothing changes. */
export const POLL_CAP_MS = 30_000;
/** News come in bunches. One look is enough for those of this much time. */
const GATHER_MS = 150;
/** Conversations in a page, */
const PAGE = 50;
/** and in the largest that the server gives. */
const MOST = 200;

export interface ConversationListSnapshot {
  /** Newest first. */
  readonly conversations: readonly ConversationDocument[];
  /** Whether it has never been read. */
  readonly isLoading: boolean;
  /** Whether there are older ones: see `loadMore`. */
  readonly hasMore: boolean;
  readonly error: OutlastError | null;
}

const lists = new WeakMap<OutlastClient, ConversationList>();

/** The list of a client's conversations: the same one for the same client. */
export function conversationList(client: OutlastClient): ConversationList {
  const list = lists.get(client) ?? new ConversationList(client);
  lists.set(client, list);
  return list;
}

export class ConversationList extends Store<ConversationListSnapshot> {
  readonly #client: OutlastClient;
  readonly #shared: Shared;
  #conversations: readonly ConversationDocument[] = [];
  #cursor: string | null = null;
  #isLoading = true;
  #error: OutlastError | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pollMs = POLL_MS;
  #stop: (() => void) | null = null;
  #reading: Promise<void> | null = null;

  /** See `conversationList`. */
  constructor(client: OutlastClient) {
    super(sharedBy(client).schedule);
    this.#client = client;
    this.#shared = sharedBy(client);
    this.initialSnapshot();
  }

  /** Reads the newest again. */
  refresh(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
      this.#pollLater();
    });
    return this.#reading;
  }

  /** Reads older ones. */
  async loadMore(): Promise<void> {
    const cursor = this.#cursor;
    if (cursor === null) return;
    await this.#attempt(async () => {
      const page = await this.#client.listConversations({ cursor, limit: PAGE });
      if (this.#cursor !== cursor) return;
      const known = new Set(this.#conversations.map(({ id }) => id));
      this.#conversations = [...this.#conversations, ...page.data.filter(({ id }) => !known.has(id))];
      this.#cursor = page.nextCursor;
    });
  }

  rename(id: string, title: string): Promise<unknown> {
    return this.#client.updateConversation(id, { title });
  }

  remove(id: string): Promise<void> {
    return this.#client.deleteConversation(id);
  }

  protected render(): ConversationListSnapshot {
    const conversations = this.#conversations;
    return { conversations, isLoading: this.#isLoading, hasMore: this.#cursor !== null, error: this.#error };
  }

  protected wake(): void {
    if (this.#stop !== null) return;
    const unlisten = this.#shared.news.listen((news) => this.#hear(news));
    const unwatch = this.#shared.environment.watch((what) => {
      if (what === "visible" || what === "online") this.#refreshSoon();
    });
    this.#stop = () => (unlisten(), unwatch());
    void this.refresh();
  }

  protected rest(): void {
    this.#stop?.();
    this.#stop = null;
    clearTimeout(this.#timer);
  }

  async #read(): Promise<void> {
    await this.#attempt(async () => {
      // As many as there are, so that those of later pages stay.
      const limit = Math.min(MOST, Math.max(PAGE, this.#conversations.length));
      const page = await this.#client.listConversations({ limit });
      const conversations = page.data.map((conversation) => this.#newer(conversation));
      const isSame = (one: ConversationDocument, place: number): boolean =>
        one === this.#conversations[place];
      this.#pollMs = conversations.every(isSame) ? Math.min(POLL_CAP_MS, this.#pollMs * 2) : POLL_MS;
      this.#conversations = conversations;
      this.#cursor = page.nextCursor;
    });
    this.#isLoading = false;
    this.changed();
  }

  /** Of two accounts of a conversation the one that has seen more of its log. */
  #newer(conversation: ConversationDocument): ConversationDocument {
    const known = this.#conversations.find(({ id }) => id === conversation.id);
    return known !== undefined && known.lastSeq >= conversation.lastSeq ? known : conversation;
  }

  /** The server looks after everything; a list that cannot be read says so and is read again later. */
  async #attempt(read: () => Promise<void>): Promise<void> {
    try {
      await read();
      this.#error = null;
    } catch (error) {
      if (!(error instanceof OutlastError)) throw error;
      this.#error = error;
    }
    this.changed();
  }

  #hear(news: News): void {
    switch (news.type) {
      case "changed":
        this.#refreshSoon();
        break;
      case "deleted":
        this.#conversations = this.#conversations.filter(({ id }) => id !== news.conversationId);
        this.changed();
        break;
      case "seen":
        this.#merge(news.conversation);
        break;
    }
  }

  #merge(conversation: ConversationDocument): void {
    const newer = this.#newer(conversation);
    if (this.#conversations.includes(newer)) return;
    const isKnown = this.#conversations.some(({ id }) => id === newer.id);
    this.#conversations = isKnown
      ? this.#conversations.map((known) => (known.id === newer.id ? newer : known))
      : [...this.#conversations, newer].sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
    this.changed();
    this.#pollLater();
  }

  #refreshSoon(): void {
    if (this.#stop === null) return;
    this.#pollMs = POLL_MS;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.refresh(), GATHER_MS);
  }

  #pollLater(): void {
    clearTimeout(this.#timer);
    const moving = this.#conversations.some(({ generationStatus }) => isUnderWay(generationStatus));
    if (this.#stop === null || (!moving && this.#error === null)) return;
    this.#timer = setTimeout(() => {
      // A page that nobody looks at is told when it is visible again.
      if (this.#shared.environment.isVisible()) void this.refresh();
    }, this.#pollMs);
  }
}
