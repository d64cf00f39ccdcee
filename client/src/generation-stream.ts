/** A generation's events as an async iterable that survives lost connections. */

import type { OutlastEvent } from "./event.js";
import { isEnd } from "./event.js";
import { Follower } from "./follower.js";
import { pathOf } from "./http.js";
import type { Connection } from "./machine.js";
import type { Shared } from "./options.js";

export interface SubscribeOptions {
  /** The last known position. Without it, the stream starts with the generation's first event. */
  readonly after?: number;
  readonly signal?: AbortSignal;
  /** Called when the state of the connection changes. */
  readonly onConnection?: (connection: Connection) => void;
}

/**
 * A snapshot replaces events that are no longer kept, and holds the messages of the generation instead. If the
 * generation had ended by then, nothing follows it.
 */
function isOver(event: OutlastEvent, generationId: string): boolean {
  if (event.type !== "snapshot") return false;
  const { activeRun, queue = [] } = event.payload;
  return ![activeRun, ...queue].some((run) => run?.generationId === generationId);
}

export async function* generationEvents(
  shared: Shared,
  generationId: string,
  options: SubscribeOptions,
): AsyncGenerator<OutlastEvent, void, undefined> {
  // Holds at most one generation, whose size the server limits.
  let arrived: OutlastEvent[] = [];
  let notify: () => void = () => {};
  options.signal?.throwIfAborted();
  const follower = new Follower({
    transport: shared.sse,
    path: pathOf("generations", generationId),
    isDense: false,
    after: options.after ?? null,
    environment: shared.environment,
    // Events that were passed on cannot be taken back, so starting over is never an option.
    isExact: async () => true,
    isBusy: () => true,
    onEvents(events) {
      arrived.push(...events);
      if (events.some((event) => isEnd(event) || isOver(event, generationId))) follower.stop();
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
