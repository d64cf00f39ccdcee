/** The interface of the two transports. */

import type { OutlastEvent } from "./event.js";
import type { Why } from "./machine.js";

export interface Target {
  /** The path of a conversation or generation: `/v1/conversations/conv_1`. */
  readonly path: string;
  /** The last known position; null to start with a snapshot, or with the generation's first event. */
  readonly after: number | null;
}

/** Receives the reports of a connection. Reports after it was closed are ignored. */
export interface Sink {
  opened(): void;
  events(events: readonly OutlastEvent[]): void;
  /** A keep-alive. */
  alive(): void;
  closed(why: Why): void;
}

export interface Transport {
  /**
   * Whether browsers allow only a few of these connections per origin. Then a hidden page closes its own even while
   * a generation runs.
   */
  readonly scarce: boolean;
  /** Connects. The returned function closes the connection. */
  open(target: Target, sink: Sink): () => void;
}
