/** How events travel. There are two ways, behind one small interface. */

import type { OutlastEvent } from "./event.js";
import type { Why } from "./machine.js";

export interface Target {
  /** Of a conversation or generation, as in `/v1/conversations/conv_1`. */
  readonly path: string;
  /** The last position that is known; null to begin with a snapshot, or with the generation's first event. */
  readonly after: number | null;
}

/** Where a connection reports. What it says after it was closed is not heard. */
export interface Sink {
  opened(): void;
  events(events: readonly OutlastEvent[]): void;
  /** The other side is there, though it has nothing to say. */
  alive(): void;
  closed(why: Why): void;
}

export interface Transport {
  /**
   * Whether browsers allow only a few of these connections for each origin, so that a hidden page should
   * give its own back even while something is under way.
   */
  readonly scarce: boolean;
  /** Connects. The answer closes the connection. */
  open(target: Target, sink: Sink): () => void;
}
