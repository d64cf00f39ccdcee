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
  /** When the oldest was made of those that were read without a gap: the cursor goes on from there. */
  #reach: string | null = null;
  /** What a read that was under way may still bring. Ids are not used again, and nobody deletes very many. */
  readonly #deleted = new Set<string>();
  #isLoading = true;
  #error: OutlastError | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #pollMs = POLL_MS;
  #stop: (() => void) | null = null;
  #reading: Promise<void> | null = null;
  #next: Promise<void> | null = null;

  /** See `conversationList`. */
  constructor(client: OutlastClient) {
    super(sharedBy(client).schedule);
    this.#client = client;
    this.#shared = sharedBy(client);
    this.initialSnapshot();
  }

  /** Reads the newest again. What was being read already may be older than this: then once more after it. */
  refresh(): Promise<void> {
    if (this.#reading !== null) return (this.#next ??= this.#reading.then(() => this.refresh()));
    this.#next = null;
    this.#reading = this.#read().finally(() => {
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
      this.#conversations = this.#sorted(page.data, this.#conversations);
      this.#cursor = page.nextCursor;
      this.#reach = page.data.at(-1)?.createdAt ?? this.#reach;
    });
  }

  /** Null clears the title. */
  rename(id: string, title: string | null): Promise<unknown> {
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
      // As many as there are, if that can be had at once, so that all of them are fresh.
      const limit = Math.min(MOST, Math.max(PAGE, this.#conversations.length));
      const page = await this.#client.listConversations({ limit });
      const last = page.nextCursor === null ? "" : (page.data.at(-1)?.createdAt ?? "");
      // Older ones are not in the page and stay. Of the others, those that are not in it are gone.
      const conversations = this.#sorted(
        page.data,
        this.#conversations.filter(({ createdAt }) => createdAt < last),
      );
      const isSame = (one: ConversationDocument, place: number): boolean =>
        one === this.#conversations[place];
      this.#pollMs = conversations.every(isSame) ? Math.min(POLL_CAP_MS, this.#pollMs * 2) : POLL_MS;
      this.#conversations = conversations;
      if (this.#reach !== null && this.#reach < last) return;
      this.#cursor = page.nextCursor;
      this.#reach = last;
    });
    this.#isLoading = false;
    this.changed();
  }

  /** What was read and what is known beside it, each once, newest first. */
  #sorted(
    read: readonly ConversationDocument[],
    known: readonly ConversationDocument[],
  ): readonly ConversationDocument[] {
    const fresh = read.map((conversation) => this.#newer(conversation));
    const ids = new Set(fresh.map(({ id }) => id));
    return [...fresh, ...known.filter(({ id }) => !ids.has(id))]
      .filter(({ id }) => !this.#deleted.has(id))
      .sort((a, b) => (a.createdAt === b.createdAt ? 0 : a.createdAt < b.createdAt ? 1 : -1));
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
        this.#deleted.add(news.conversationId);
        this.#conversations = this.#sorted([], this.#conversations);
        this.changed();
        break;
      case "seen":
        this.#merge(news.conversation);
        break;
    }
  }

  #merge(conversation: ConversationDocument): void {
    if (this.#conversations.includes(this.#newer(conversation))) return;
    this.#conversations = this.#sorted([conversation], this.#conversations);
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
