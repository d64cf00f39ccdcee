/** The list of conversations, as a store: their titles and states. */

import { sharedBy } from "./client.js";
import type { OutlastClient } from "./client.js";
import { isUnderWay } from "./generation.js";
import type { ConversationDocument } from "./generation.js";
import type { News } from "./news.js";
import type { Shared } from "./options.js";
import { OutlastError } from "./problem.js";
import { Store } from "./store.js";

/** How often the list is read while a generation runs. */
export const POLL_MS = 3_000;
/** While nothing changes, the interval doubles up to this. */
export const POLL_CAP_MS = 30_000;
/** News often comes in bursts. Everything within this time causes one read. */
const GATHER_MS = 150;
/** Conversations in a page. */
const PAGE = 50;
/** The largest page that the server returns. */
const MOST = 200;

export interface ConversationListSnapshot {
  /** Newest first. */
  readonly conversations: readonly ConversationDocument[];
  /** True until the list has been read once. */
  readonly isLoading: boolean;
  /** Whether there are older conversations: see `loadMore`. */
  readonly hasMore: boolean;
  readonly error: OutlastError | null;
}

const lists = new WeakMap<OutlastClient, ConversationList>();

/** The list of a client's conversations: the same store for the same client. */
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
  /** The creation time of the oldest conversation that was read without a gap. The cursor continues there. */
  #reach: string | null = null;
  /** Deleted ids, which a read in progress may still return. Ids are never reused, and few are deleted per page visit. */
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

  /** Reads the newest conversations. A read in progress may miss the latest change, so another one follows it. */
  refresh(): Promise<void> {
    if (this.#reading !== null) return (this.#next ??= this.#reading.then(() => this.refresh()));
    this.#next = null;
    this.#reading = this.#read().finally(() => {
      this.#reading = null;
      this.#pollLater();
    });
    return this.#reading;
  }

  /** Reads older conversations. */
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
      // All that are known, if they fit into one page, so that all of them are up to date.
      const limit = Math.min(MOST, Math.max(PAGE, this.#conversations.length));
      const page = await this.#client.listConversations({ limit });
      const last = page.nextCursor === null ? "" : (page.data.at(-1)?.createdAt ?? "");
      // Conversations older than the page are kept. Newer ones that are missing from it were deleted.
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

  /** Merges what was read with what is known, newest first, without duplicates. */
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

  /** The known document or the given one, whichever has seen more of the log. */
  #newer(conversation: ConversationDocument): ConversationDocument {
    const known = this.#conversations.find(({ id }) => id === conversation.id);
    return known !== undefined && known.lastSeq >= conversation.lastSeq ? known : conversation;
  }

  /** A list that cannot be read reports the error and is read again later. */
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
      case "notified":
        break;
    }
  }

  #merge(conversation: ConversationDocument): void {
    if (conversation.parent) return; // lists leave sub-agents out
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
      // A hidden page reads the list when it becomes visible.
      if (this.#shared.environment.isVisible()) void this.refresh();
    }, this.#pollMs);
  }
}
