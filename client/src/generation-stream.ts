/** One generation's events as an async iterable that survives lost connections. */

import type { OutlastEvent } from "./event.js";
import { isEnd } from "./event.js";
import { Follower } from "./follower.js";
import { pathOf } from "./http.js";
import type { Connection } from "./machine.js";
import type { Shared } from "./options.js";

export interface SubscribeOptions {
  /** The last position that is known; left out for the whole generation. */
  readonly after?: number;
  readonly signal?: AbortSignal;
  /** Told how the connection stands. */
  readonly onConnection?: (connection: Connection) => void;
}

export async function* generationEvents(
  shared: Shared,
  generationId: string,
  options: SubscribeOptions,
): AsyncGenerator<OutlastEvent, void, undefined> {
  // Grows no larger than one generation, which the server limits.
  let arrived: OutlastEvent[] = [];
  let notify: () => void = () => {};
  options.signal?.throwIfAborted();
  const follower = new Follower({
    transport: shared.sse,
    path: pathOf("generations", generationId),
    isDense: false,
    after: options.after ?? null,
    environment: shared.environment,
    // Events were handed out and cannot be taken back, so there is no use in beginning anew.
    isExact: async () => true,
    isBusy: () => true,
    onEvents(events) {
      arrived.push(...events);
      // A snapshot stands for a log that is no longer kept. Nothing follows either.
      if (events.some((event) => isEnd(event) || event.type === "snapshot")) follower.stop();
      notify();
    },
    onConnection(connection) {
      options.onConnection?.(connection);
      notify();
    },
  });
  const abort = (): void => notify();
  options.signal?.addEventListener("abort", abort);
  try {
    for (;;) {
      const events = arrived;
      arrived = [];
      yield* events;
      options.signal?.throwIfAborted();
      if (arrived.length > 0) continue;
      const { connection } = follower;
      if (connection.type === "ended") {
        if (connection.error !== null) throw connection.error;
        return;
      }
      await new Promise<void>((resolve) => (notify = resolve));
    }
  } finally {
    options.signal?.removeEventListener("abort", abort);
    follower.stop();
  }
}
