/** WebSocket where it works, Server-Sent Events where it does not. */

import type { Transport } from "./transport.js";

/** A proxy may swallow a WebSocket without a word. One that is not open by then is given up. */
export const SOCKET_LIMIT_MS = 4_000;
/** After this many in a row that did not open where the other way did, only the other way is tried. */
const SOCKETS_BEFORE_GIVING_UP = 2;

/**
 * Tries `first`, and in the same breath `second` if `first` does not open. A server that restarts refuses
 * both, and then nothing is learned about the first.
 */
export function eitherTransport(first: Transport, second: Transport): Transport {
  let failed = 0;
  let used = first;
  return {
    get scarce() {
      return used.scarce;
    },
    open(target, sink) {
      const bySecond = (failures: number): (() => void) => {
        used = second;
        const opened = (): void => ((failed = failures), sink.opened());
        return second.open(target, { ...sink, opened });
      };
      if (failed >= SOCKETS_BEFORE_GIVING_UP) return bySecond(failed);
      used = first;
      let isOpen = false;
      const giveUp = (): void => {
        clearTimeout(timer);
        close();
        close = bySecond(failed + 1);
      };
      const timer = setTimeout(giveUp, SOCKET_LIMIT_MS);
      let close: () => void = () => {};
      try {
        close = first.open(target, {
          ...sink,
          opened() {
            isOpen = true;
            failed = 0;
            clearTimeout(timer);
            sink.opened();
          },
          // Once it has been open, what ends it says nothing about the way.
          closed: (why) => (isOpen ? sink.closed(why) : giveUp()),
        });
      } catch {
        // Pages may be forbidden to make one at all.
        giveUp();
      }
      return () => {
        clearTimeout(timer);
        close();
      };
    },
  };
}
