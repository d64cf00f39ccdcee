/** What happened while nobody was watching, as a store: the list, the number of unread ones, live. */

import type * as api from "./api.js";
import { sharedBy } from "./client.js";
import type { OutlastClient } from "./client.js";
import type { Notification, NotificationList, Outcome, PushKey, Question } from "./generated/api.js";
import type { Shared } from "./options.js";
import { networkError, OutlastError } from "./problem.js";
import { SseParser } from "./sse.js";
import { Store } from "./store.js";

export type { Notification, NotificationKind, Question } from "./generated/api.js";

/** The delay before the stream is opened again. It doubles up to the second. */
const AGAIN_MS = 1_000;
const AGAIN_CAP_MS = 60_000;
const PATH = "/v1/notifications";

export interface NotificationsSnapshot {
  /** Newest first. */
  readonly notifications: readonly Notification[];
  readonly unread: number;
  /** The last one that arrived while this store was watched. */
  readonly latest: Notification | null;
  readonly error: OutlastError | null;
}

const stores = new WeakMap<OutlastClient, Notifications>();

/** The notifications of a client's user: the same store for the same client. */
export function notificationsOf(client: OutlastClient): Notifications {
  const store = stores.get(client) ?? new Notifications(client);
  stores.set(client, store);
  return store;
}

export class Notifications extends Store<NotificationsSnapshot> {
  readonly #shared: Shared;
  #notifications: readonly Notification[] = [];
  #unread = 0;
  #latest: Notification | null = null;
  #error: OutlastError | null = null;
  #following: AbortController | null = null;
  /** The ids that were listed last; null before the first time. */
  #known: ReadonlySet<string> | null = null;

  /** See `notificationsOf`. */
  constructor(client: OutlastClient) {
    super(sharedBy(client).schedule);
    this.#shared = sharedBy(client);
    this.initialSnapshot();
  }

  /** Reads the list again. */
  async refresh({ signal }: api.CallOptions = {}): Promise<void> {
    const { data, unread } = await this.#shared.http.request<NotificationList>("GET", PATH, { signal });
    const known = this.#known;
    this.#known = new Set(data.map(({ id }) => id));
    const arrived = known && data.find(({ id, readAt }) => readAt === null && !known.has(id));
    if (arrived) this.#latest = arrived;
    [this.#notifications, this.#unread, this.#error] = [data, unread, null];
    this.changed();
  }

  async markRead(id: string): Promise<void> {
    await this.#post<Notification>(`${PATH}/${encodeURIComponent(id)}/read`, {});
    await this.#tell();
  }

  async markAllRead(): Promise<void> {
    await this.#post<unknown>(`${PATH}/read`, {});
    await this.#tell();
  }

  /** The question behind a notification of kind `approval`. */
  question(id: string): Promise<Question> {
    return this.#shared.http.request("GET", `${PATH}/${encodeURIComponent(id)}/approval`);
  }

  decide(id: string, decision: "approve" | "deny"): Promise<Outcome> {
    return this.#post(`${PATH}/${encodeURIComponent(id)}/approval`, { decision });
  }

  /** The `applicationServerKey` for push subscriptions. */
  async pushKey(): Promise<string> {
    return (await this.#shared.http.request<PushKey>("GET", "/v1/push")).publicKey;
  }

  /** Sends notifications to this browser. Pass `PushSubscription.toJSON()`. */
  async addPush(subscription: object): Promise<void> {
    await this.#post("/v1/push", subscription);
  }

  async removePush(endpoint: string): Promise<void> {
    await this.#shared.http.request("DELETE", "/v1/push", { body: { endpoint } });
  }

  protected render(): NotificationsSnapshot {
    return {
      notifications: this.#notifications,
      unread: this.#unread,
      latest: this.#latest,
      error: this.#error,
    };
  }

  protected wake(): void {
    if (this.#following !== null) return;
    const { signal } = (this.#following = new AbortController());
    const unlisten = this.#shared.news.listen(({ type }) => {
      if (type === "notified") void this.refresh({ signal }).catch(() => {});
    });
    signal.addEventListener("abort", unlisten);
    void this.refresh({ signal }).catch(() => {});
    void onlyInOneTab(signal, () => this.#follow(signal));
  }

  protected rest(): void {
    this.#following?.abort();
    this.#following = null;
  }

  #post<Body>(path: string, body: object): Promise<Body> {
    return this.#shared.http.request("POST", path, { body });
  }

  /** Reads the list again, here and in other tabs. */
  #tell(): Promise<void> {
    this.#shared.news.tell({ type: "notified" });
    return this.isWatched ? Promise.resolve() : this.refresh();
  }

  /** Follows the stream until the signal is aborted, across lost connections. */
  async #follow(signal: AbortSignal): Promise<void> {
    for (let waitMs = AGAIN_MS; !signal.aborted; waitMs = Math.min(2 * waitMs, AGAIN_CAP_MS)) {
      try {
        const began = Date.now();
        await this.#stream(signal).finally(() => {
          if (Date.now() - began > waitMs) waitMs = AGAIN_MS / 2;
        });
      } catch (error) {
        if (signal.aborted) return;
        this.#error = error instanceof OutlastError ? error : networkError("the connection was lost");
        this.changed();
        // A refusal stays one: nobody is logged in, or the server offers no notifications.
        if (this.#error.status >= 400 && this.#error.status < 500 && this.#error.status !== 429) return;
      }
      await this.#rest(waitMs, signal);
    }
  }

  async #stream(signal: AbortSignal): Promise<void> {
    const { body } = await this.#shared.http.send("GET", `${PATH}/events`, { signal }, "text/event-stream");
    if (body === null) throw networkError("the response is not from an Outlast server");
    const reader = body.getReader();
    const parser = new SseParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      // Whatever the events say, the list says more. The first one comes at once.
      if (parser.push(value).length > 0) await this.#tell();
    }
  }

  /** Waits before the next try, or until the page is visible or online again. */
  #rest(waitMs: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const go = (): void => (unwatch(), clearTimeout(timer), resolve());
      const unwatch = this.#shared.environment.watch((what) => {
        if (what === "online" || what === "visible") go();
      });
      const timer = setTimeout(go, waitMs);
      signal.addEventListener("abort", go);
    });
  }
}

/**
 * Browsers allow six connections to a server over HTTP/1.1, for all tabs together, and a stream takes one for good. So
 * only one tab follows and tells the others; when it is closed, the next one does.
 */
async function onlyInOneTab(signal: AbortSignal, follow: () => Promise<void>): Promise<void> {
  const locks = globalThis.navigator?.locks as LockManager | undefined;
  if (locks === undefined) return follow();
  await locks.request("outlast-notifications", { signal }, follow).catch(() => {});
}
